/* SPDX-License-Identifier: GPL-2.0-only
 *
 * One collective on one fabric, packet by packet, in ns-3. Links with ns-3, so this folder is GPLv2 (see LICENSE).
 *
 *   collective --topology=torus --sizes=4x4 --GBps=32x32 --hop=32x32 --collective=all_reduce --algorithm=ring --bytes=65536
 *
 * prints the time in ns at which the last rank is done. Several jobs, one for each line, are read from standard input with
 * --batch=1 (topology sizes GBps hop collective algorithm bytes, separated by blanks).
 *
 * What is simulated: point-to-point links (serialisation in whole nanoseconds, then the hop's latency), first-in first-out
 * queues without loss, nodes and switches that store a packet before they forward it. A message is cut into packets of
 * `payload` bytes with `header` bytes each; when its last packet is in, the receiver sends one packet of `header` bytes
 * back, and the message is complete when that arrives. A rank begins its next step when all messages it sent in the last
 * are complete and all it waits for are in. Messages a rank sends at once take turns, packet by packet.
 */
#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <deque>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;
using std::string;
using std::vector;

namespace
{

const uint16_t PROTOCOL = 0x0800; // any that the point-to-point header knows
const uint32_t LINK_HEADER = 2;   // bytes the device itself adds

struct Job
{
    string topology, collective, algorithm;
    vector<int> sizes;
    vector<double> rate, hop; // of the inner dimension and of all others
    uint64_t bytes;
};

/** Which message a packet belongs to, and whether it is data or the acknowledgement. */
class Mark : public Tag
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("CollectiveMark").SetParent<Tag>().AddConstructor<Mark>();
        return id;
    }
    TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return 5; }
    void Serialize(TagBuffer b) const override { b.WriteU32(message); b.WriteU8(ack); }
    void Deserialize(TagBuffer b) override { message = b.ReadU32(); ack = b.ReadU8(); }
    void Print(std::ostream& o) const override { o << message << (ack ? " ack" : ""); }
    uint32_t message = 0;
    uint8_t ack = 0;
};

struct Send
{
    int to;
    uint64_t bytes;
};

/** What every rank does in one step: what it sends, and how many messages of that step it waits for. */
struct Step
{
    vector<vector<Send>> sends;
    vector<int> waits;
    explicit Step(int ranks) : sends(ranks), waits(ranks, 0) {}
    void Add(int from, int to, uint64_t bytes)
    {
        sends[from].push_back({to, std::max<uint64_t>(bytes, 1)});
        waits[to]++;
    }
};

struct Message
{
    int from, to, step;
    uint64_t unsent, missing;
};

// ---- schedules ----------------------------------------------------------------------------------------------------

int Product(const vector<int>& sizes)
{
    int n = 1;
    for (int s : sizes) n *= s;
    return n;
}

/** The rank `by` places further along dimension `d` (with wrap). Dimension 0 varies fastest. */
int Along(int rank, const vector<int>& sizes, size_t d, int by)
{
    int stride = 1;
    for (size_t i = 0; i < d; i++) stride *= sizes[i];
    int place = rank / stride % sizes[d];
    return rank + ((place + by) % sizes[d] - place) * stride;
}

vector<Step> Schedule(const Job& job)
{
    // A switch's ranks are one dimension, whatever levels it has; tori and meshes go dimension by dimension.
    int ranks = Product(job.sizes);
    vector<int> sizes = job.topology == "switch" ? vector<int>{ranks} : job.sizes;
    vector<Step> steps;
    auto ring = [&](size_t d, int count, uint64_t bytes) {
        for (int k = 0; k < count; k++)
        {
            steps.emplace_back(ranks);
            for (int r = 0; r < ranks; r++) steps.back().Add(r, Along(r, sizes, d, 1), bytes);
        }
    };
    auto pairs = [&](int distance, uint64_t bytes) {
        steps.emplace_back(ranks);
        for (int r = 0; r < ranks; r++) steps.back().Add(r, r ^ distance, bytes);
    };
    auto part = [&](uint64_t whole, uint64_t pieces) { return (whole + pieces - 1) / pieces; };
    bool per_dimension = job.algorithm == "ring" || job.algorithm == "rs_ag_ag_3stage";
    bool power = (ranks & (ranks - 1)) == 0;
    uint64_t n = job.bytes;
    if (job.collective == "all_gather" && per_dimension)
        for (size_t d = 0; d < sizes.size(); n *= sizes[d++]) ring(d, sizes[d] - 1, n);
    else if (job.collective == "all_gather" && job.algorithm == "halving_doubling" && power)
        for (int k = 1; k < ranks; k *= 2) pairs(k, n * k);
    else if (job.collective == "all_reduce" && per_dimension)
    {
        uint64_t pieces = 1;
        for (size_t d = 0; d < sizes.size(); d++) ring(d, sizes[d] - 1, part(n, pieces *= sizes[d]));
        for (size_t d = sizes.size(); d-- > 0; pieces /= sizes[d]) ring(d, sizes[d] - 1, part(n, pieces));
    }
    else if (job.collective == "all_reduce" && job.algorithm == "rabenseifner" && power)
    {
        for (int k = 1; k < ranks; k *= 2) pairs(k, part(n, 2 * uint64_t(k)));
        for (int k = ranks / 2; k >= 1; k /= 2) pairs(k, part(n, 2 * uint64_t(k)));
    }
    else if (job.collective == "all_to_all" && (job.algorithm == "at_once" || (job.algorithm == "direct" && job.topology == "switch")))
    {
        steps.emplace_back(ranks);
        for (int k = 1; k < ranks; k++)
            for (int r = 0; r < ranks; r++) steps.back().Add(r, (r + k) % ranks, n);
    }
    else if (job.collective == "all_to_all" && (job.algorithm == "direct" || job.algorithm == "relay"))
    {
        // To the neighbour, over and over: a block to the rank k places on is passed on k times. A relay carries in each
        // step what all ranks behind the neighbour in the other dimensions get; "direct" is the schedule of the published
        // set, one pair's block in each step.
        for (size_t d = 0; d < sizes.size(); d++)
            ring(d, sizes[d] * (sizes[d] - 1) / 2, job.algorithm == "direct" ? n : n * (ranks / sizes[d]));
    }
    else
        NS_FATAL_ERROR("no " << job.collective << " by " << job.algorithm << " on " << ranks << " ranks of a " << job.topology);
    return steps;
}

// ---- network ------------------------------------------------------------------------------------------------------

class Run
{
  public:
    Run(const Job& job, uint32_t payload, uint32_t header) : job_(job), payload_(payload), header_(header), steps_(Schedule(job))
    {
        ranks_ = Product(job.sizes);
        if (job.topology == "switch") Switches();
        else Grid(job.topology == "torus");
        Routes();
    }

    int64_t Time()
    {
        step_.assign(ranks_, -1);
        open_.assign(ranks_, 0);
        in_.assign(ranks_, vector<int>(steps_.size(), 0));
        for (int r = 0; r < ranks_; r++) Simulator::ScheduleNow(&Run::Advance, this, r);
        Simulator::Run();
        for (int r = 0; r < ranks_; r++)
            if (step_[r] != int(steps_.size())) NS_FATAL_ERROR("rank " << r << " is stuck in step " << step_[r]);
        Simulator::Destroy();
        return done_.GetNanoSeconds();
    }

  private:
    struct Port
    {
        Ptr<PointToPointNetDevice> device;
        int peer;
        std::deque<uint32_t> turns; // messages that still have packets to inject here
        bool waiting = false;       // one of them is in the device's queue
    };

    void Node(int count)
    {
        nodes_.Create(count);
        ports_.resize(nodes_.GetN());
    }

    void Link(int a, int b, int level)
    {
        PointToPointHelper helper;
        helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(job_.rate[level] * 8e9 + 0.5))));
        helper.SetChannelAttribute("Delay", TimeValue(NanoSeconds(int64_t(job_.hop[level]))));
        helper.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000000p"));
        NetDeviceContainer made = helper.Install(nodes_.Get(a), nodes_.Get(b));
        for (int side = 0; side < 2; side++)
        {
            int here = side ? b : a;
            auto device = DynamicCast<PointToPointNetDevice>(made.Get(side));
            device->SetReceiveCallback(MakeCallback(&Run::Receive, this));
            owner_[PeekPointer(device)] = here;
            device->TraceConnectWithoutContext(
                "PhyTxBegin", Callback<void, Ptr<const Packet>>([this, here, i = ports_[here].size()](Ptr<const Packet> p) { Began(here, i, p); }));
            ports_[here].push_back({device, side ? a : b, {}, false});
        }
    }

    /** sizes[0] hosts for each switch, sizes[1] switches under one outer switch. */
    void Switches()
    {
        int inner = job_.sizes[0], outer = job_.sizes.size() > 1 ? job_.sizes[1] : 1;
        Node(ranks_ + outer + (outer > 1));
        for (int r = 0; r < ranks_; r++) Link(r, ranks_ + r / inner, 0);
        for (int s = 0; outer > 1 && s < outer; s++) Link(ranks_ + s, ranks_ + outer, 1);
    }

    void Grid(bool wraps)
    {
        Node(ranks_);
        for (size_t d = 0; d < job_.sizes.size(); d++)
            for (int r = 0; r < ranks_; r++)
            {
                int next = Along(r, job_.sizes, d, 1);
                bool closing = next <= r;
                if (closing && (!wraps || job_.sizes[d] <= 2)) continue;
                Link(r, next, d ? 1 : 0);
            }
    }

    /** Next port on a shortest way to every rank: on grids the lowest dimension first. */
    void Routes()
    {
        int count = nodes_.GetN();
        route_.assign(count, vector<int>(ranks_, -1));
        for (int to = 0; to < ranks_; to++)
        {
            vector<int> far(count, -1);
            std::deque<int> next{to};
            far[to] = 0;
            for (; !next.empty(); next.pop_front())
                for (const Port& p : ports_[next.front()])
                    if (far[p.peer] < 0) far[p.peer] = far[next.front()] + 1, next.push_back(p.peer);
            for (int node = 0; node < count; node++)
                for (size_t i = 0; i < ports_[node].size() && route_[node][to] < 0; i++)
                    if (far[ports_[node][i].peer] == far[node] - 1) route_[node][to] = i;
        }
    }

    // ---- ranks ----

    void Advance(int rank)
    {
        while (step_[rank] < int(steps_.size()) && open_[rank] == 0 && (step_[rank] < 0 || in_[rank][step_[rank]] == steps_[step_[rank]].waits[rank]))
        {
            if (++step_[rank] == int(steps_.size()))
            {
                done_ = std::max(done_, Simulator::Now());
                return;
            }
            vector<size_t> used;
            for (const Send& s : steps_[step_[rank]].sends[rank])
            {
                messages_.push_back({rank, s.to, step_[rank], s.bytes, s.bytes});
                open_[rank]++;
                size_t port = route_[rank][s.to];
                ports_[rank][port].turns.push_back(messages_.size() - 1);
                used.push_back(port);
            }
            for (size_t port : used) Inject(rank, port);
        }
    }

    /** One own packet at a time waits in a device's queue, so that own and passing packets take turns. */
    void Inject(int node, size_t index)
    {
        Port& port = ports_[node][index];
        if (port.waiting || port.turns.empty()) return;
        uint32_t id = port.turns.front();
        port.turns.pop_front();
        uint32_t size = std::min<uint64_t>(messages_[id].unsent, payload_);
        messages_[id].unsent -= size;
        if (messages_[id].unsent) port.turns.push_back(id);
        port.waiting = true;
        Put(node, index, size, id, false);
    }

    void Put(int node, size_t index, uint32_t payload, uint32_t id, bool ack)
    {
        Ptr<Packet> packet = Create<Packet>(payload + header_ - LINK_HEADER);
        Mark mark;
        mark.message = id;
        mark.ack = ack;
        packet->AddPacketTag(mark);
        Forward(node, index, packet);
    }

    void Forward(int node, size_t index, Ptr<Packet> packet)
    {
        auto device = ports_[node][index].device;
        if (!device->Send(packet, device->GetBroadcast(), PROTOCOL)) NS_FATAL_ERROR("a packet was dropped at node " << node);
    }

    void Began(int node, size_t index, Ptr<const Packet> packet)
    {
        Mark mark;
        packet->PeekPacketTag(mark);
        if (mark.ack || messages_[mark.message].from != node) return;
        ports_[node][index].waiting = false;
        Inject(node, index);
    }

    bool Receive(Ptr<NetDevice> device, Ptr<const Packet> packet, uint16_t, const Address&)
    {
        int node = owner_[PeekPointer(device)];
        Mark mark;
        packet->PeekPacketTag(mark);
        Message& m = messages_[mark.message];
        int target = mark.ack ? m.from : m.to;
        if (node != target)
        {
            Forward(node, route_[node][target], packet->Copy());
            return true;
        }
        if (mark.ack)
        {
            open_[node]--;
            Advance(node);
            return true;
        }
        m.missing -= packet->GetSize() - (header_ - LINK_HEADER);
        if (m.missing == 0)
        {
            in_[node][m.step]++;
            Put(node, route_[node][m.from], 0, mark.message, true);
            Advance(node);
        }
        return true;
    }

    Job job_;
    uint32_t payload_, header_;
    vector<Step> steps_;
    int ranks_;
    NodeContainer nodes_;
    vector<vector<Port>> ports_;
    std::map<const NetDevice*, int> owner_;
    vector<vector<int>> route_, in_;
    vector<int> step_, open_;
    std::deque<Message> messages_;
    ns3::Time done_;
};

template <typename T>
vector<T> Split(const string& text)
{
    vector<T> made;
    std::stringstream in(text);
    for (string word; std::getline(in, word, 'x');) made.push_back(T(std::stod(word)));
    return made;
}

} // namespace

int main(int argc, char* argv[])
{
    string topology = "switch", sizes = "8", rate = "32x32", hop = "32x32", collective = "all_reduce", algorithm = "ring";
    uint64_t bytes = 65536;
    uint32_t payload = 1000, header = 50;
    bool batch = false;
    CommandLine cmd;
    cmd.AddValue("topology", "switch, torus or mesh", topology);
    cmd.AddValue("sizes", "sides, innermost first, like 8x8", sizes);
    cmd.AddValue("GBps", "link bandwidth, inner x others", rate);
    cmd.AddValue("hop", "latency of a hop in ns, inner x others", hop);
    cmd.AddValue("collective", "all_gather, all_reduce or all_to_all", collective);
    cmd.AddValue("algorithm", "ring, rs_ag_ag_3stage, halving_doubling, rabenseifner, direct, relay or at_once", algorithm);
    cmd.AddValue("bytes", "of a rank (all_gather), in all (all_reduce), of a pair (all_to_all)", bytes);
    cmd.AddValue("payload", "payload of a packet", payload);
    cmd.AddValue("header", "header of a packet", header);
    cmd.AddValue("batch", "read jobs from standard input", batch);
    cmd.Parse(argc, argv);
    Time::SetResolution(Time::NS);
    auto one = [&] {
        return Run({topology, collective, algorithm, Split<int>(sizes), Split<double>(rate), Split<double>(hop), bytes}, payload, header).Time();
    };
    if (!batch) std::cout << one() << std::endl;
    for (string line; batch && std::getline(std::cin, line);)
    {
        std::stringstream in(line);
        if (in >> topology >> sizes >> rate >> hop >> collective >> algorithm >> bytes) std::cout << one() << std::endl;
    }
    return 0;
}
