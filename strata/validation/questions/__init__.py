"""Kinds of question that measured rows ask: each with its arguments and answers, asked through the function
that answers users.
"""
