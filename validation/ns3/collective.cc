/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Collectives on one fabric, packet by packet, in ns-3. Links with ns-3, so this folder is GPLv2 (see LICENSE).
 *
 *   collective --topology=torus --sizes=4x4 --GBps=32x32 --hop=32x32 --collective=all_reduce --algorithm=ring --bytes=65536
 *
 * prints the time in ns at which the last rank is done. Several jobs, one for each line, are read from standard input with
 * --batch=1 (topology sizes GBps hop collective algorithm bytes, separated by blanks), or spelt out with --jobs=1, as
 *
 *   levels switch:4:256:128 tree:2:32:512 ring:3:100:50   (kind:size:GBps:hop, innermost first)
 *   schedule                                              (one or more, which start at once)
 *   step                                                  (of every schedule, in order)
 *   0 5 4096                                              (from, to, bytes; all messages of a step)
 *   run                                                   (prints the time of all, then that of each schedule)
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

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace ns3;
using std::string;
using std::vector;

namespace
{

const uint16_t PROTOCOL = 0x0800; // any that the point-to-point header knows
const uint32_t LINK_HEADER = 2;   // bytes the device itself adds

/** One dimension: switch, tree (joins the switches below by one link each), ring, chain or full. */
struct Level
{
    string kind;
    int size;
    double rate, hop;
};

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
    int from, to, schedule, step;
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
        for (int k = ranks / 2; k >= 1; k /= 2, n *= 2) pairs(k, n); // the outer level first, while messages are small
    else if (job.collective == "all_gather" && job.algorithm == "halving_doubling_inner_first" && power)
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

using Place = vector<int>;

/** Nodes of composed levels and the next one on the way, dimension by dimension; forward where a ring is equally long both ways. */
class Fabric
{
  public:
    explicit Fabric(const vector<Level>& levels) : levels_(levels)
    {
        for (size_t i = 0; i < levels.size(); i++)
        {
            const string& kind = levels[i].kind;
            if (kind != "switch" && kind != "tree" && kind != "ring" && kind != "chain" && kind != "full")
                NS_FATAL_ERROR("a level is switch, tree, ring, chain or full, but got " << kind);
            if (levels[i].size < 1) NS_FATAL_ERROR("a level has a size of at least 1");
            first_.push_back(kind == "tree" ? first_.at(i ? i - 1 : 1) : int(i));
            if (levels[first_[i]].kind != "switch" && kind == "tree") NS_FATAL_ERROR("below a tree there must be a switch");
            ranks_ *= levels[i].size;
        }
        for (int r = 0; r < ranks_; r++) Node(-1, At(r));
    }

    int Ranks() const { return ranks_; }
    int Count() const { return int(nodes_.size()); }

    /** All links as node, node, level. */
    vector<std::tuple<int, int, int>> Links()
    {
        std::map<std::pair<int, int>, int> made;
        for (int r = 0; r < ranks_; r++)
            for (size_t i = 0; i < levels_.size(); i++)
            {
                Place here = At(r);
                const Level& level = levels_[i];
                if (level.kind == "switch" || level.kind == "tree")
                {
                    int below = i == size_t(first_[i]) ? r : Switch(i - 1, here);
                    made.insert({{below, Switch(i, here)}, int(i)});
                    continue;
                }
                for (int k = 0; k < level.size; k++)
                {
                    bool next = k == here[i] + 1 || (level.kind == "ring" && level.size > 2 && here[i] == 0 && k == level.size - 1);
                    Place there = here;
                    there[i] = k;
                    if (k > here[i] && (next || level.kind == "full")) made.insert({{r, Node(-1, there)}, int(i)});
                }
            }
        vector<std::tuple<int, int, int>> links;
        for (auto& [ends, level] : made) links.emplace_back(ends.first, ends.second, level);
        return links;
    }

    int Next(int node, int to)
    {
        auto [at, here] = nodes_[node];
        Place there = At(to);
        if (at < 0)
        {
            size_t i = 0;
            while (here[i] == there[i]) i++;
            const Level& level = levels_[i];
            if (level.kind == "switch" || level.kind == "tree") return Switch(first_[i], here);
            int ahead = (there[i] - here[i] + level.size) % level.size;
            if (level.kind == "full") here[i] = there[i];
            else if (level.kind == "ring") here[i] = (here[i] + (2 * ahead <= level.size ? 1 : level.size - 1)) % level.size;
            else here[i] += there[i] > here[i] ? 1 : -1;
            return Node(-1, here);
        }
        for (size_t i = at + 1; i < levels_.size() && levels_[i].kind == "tree"; i++)
            if (here[i] != there[i]) return Switch(at + 1, here);
        here[at] = there[at];
        return at == first_[at] ? Node(-1, here) : Switch(at - 1, here);
    }

  private:
    Place At(int rank) const
    {
        Place place;
        for (const Level& level : levels_) place.push_back(rank % level.size), rank /= level.size;
        return place;
    }

    /** The switch of a level above a place: the same for all that lies below it. */
    int Switch(int level, Place place)
    {
        for (int i = first_[level]; i <= level; i++) place[i] = 0;
        return Node(level, place);
    }

    int Node(int level, const Place& place)
    {
        auto [found, fresh] = number_.insert({{level, place}, int(nodes_.size())});
        if (fresh) nodes_.emplace_back(level, place);
        return found->second;
    }

    vector<Level> levels_;
    vector<int> first_; // level of the switch below a tree, else itself
    int ranks_ = 1;
    std::map<std::pair<int, Place>, int> number_;
    vector<std::pair<int, Place>> nodes_;
};

/** Levels of a topology by name; the second rate and hop are those of all levels but the first. */
vector<Level> Named(const Job& job)
{
    vector<Level> levels;
    for (size_t i = 0; i < job.sizes.size(); i++)
    {
        string kind = job.topology == "torus" ? "ring" : job.topology == "mesh" ? "chain" : i ? "tree" : "switch";
        levels.push_back({kind, job.sizes[i], job.rate[i ? 1 : 0], job.hop[i ? 1 : 0]});
    }
    return levels;
}

class Run
{
  public:
    Run(const vector<Level>& levels, vector<vector<Step>> schedules, uint32_t payload, uint32_t header)
        : levels_(levels), payload_(payload), header_(header), schedules_(std::move(schedules)), fabric_(levels), ranks_(fabric_.Ranks())
    {
        auto links = fabric_.Links();
        nodes_.Create(fabric_.Count());
        ports_.resize(nodes_.GetN());
        for (auto [a, b, level] : links) Link(a, b, level);
        route_.assign(nodes_.GetN(), vector<int>(ranks_, -1));
    }

    /** When each schedule is done, in ns. */
    vector<int64_t> Times()
    {
        for (const auto& steps : schedules_)
        {
            step_.emplace_back(ranks_, -1);
            open_.emplace_back(ranks_, 0);
            in_.emplace_back(ranks_, vector<int>(steps.size(), 0));
            done_.push_back(0);
        }
        for (size_t s = 0; s < schedules_.size(); s++)
            for (int r = 0; r < ranks_; r++) Simulator::ScheduleNow(&Run::Advance, this, s, r);
        Simulator::Run();
        for (size_t s = 0; s < schedules_.size(); s++)
            for (int r = 0; r < ranks_; r++)
                if (step_[s][r] != int(schedules_[s].size())) NS_FATAL_ERROR("rank " << r << " is stuck in step " << step_[s][r]);
        Simulator::Destroy();
        return done_;
    }

  private:
    struct Port
    {
        Ptr<PointToPointNetDevice> device;
        int peer;
        std::deque<uint32_t> turns; // messages that still have packets to inject here
        bool waiting = false;       // one of them is in the device's queue
    };

    void Link(int a, int b, int level)
    {
        PointToPointHelper helper;
        helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(levels_[level].rate * 8e9 + 0.5))));
        helper.SetChannelAttribute("Delay", TimeValue(NanoSeconds(int64_t(levels_[level].hop))));
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

    /** The port towards a rank. */
    size_t Way(int node, int to)
    {
        int& known = route_[node][to];
        if (known < 0)
        {
            int next = fabric_.Next(node, to);
            for (known = 0; ports_[node].at(known).peer != next;) known++;
        }
        return known;
    }

    // ---- ranks ----

    void Advance(size_t schedule, int rank)
    {
        const vector<Step>& steps = schedules_[schedule];
        int& at = step_[schedule][rank];
        int count = int(steps.size());
        while (at < count && open_[schedule][rank] == 0 && (at < 0 || in_[schedule][rank][at] == steps[at].waits[rank]))
        {
            if (++at == count)
            {
                done_[schedule] = std::max(done_[schedule], Simulator::Now().GetNanoSeconds());
                return;
            }
            vector<size_t> used;
            for (const Send& s : steps[at].sends[rank])
            {
                messages_.push_back({rank, s.to, int(schedule), at, s.bytes, s.bytes});
                open_[schedule][rank]++;
                size_t port = Way(rank, s.to);
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
            Forward(node, Way(node, target), packet->Copy());
            return true;
        }
        if (mark.ack)
        {
            open_[m.schedule][node]--;
            Advance(m.schedule, node);
            return true;
        }
        m.missing -= packet->GetSize() - (header_ - LINK_HEADER);
        if (m.missing == 0)
        {
            in_[m.schedule][node][m.step]++;
            Put(node, Way(node, m.from), 0, mark.message, true);
            Advance(m.schedule, node);
        }
        return true;
    }

    vector<Level> levels_;
    uint32_t payload_, header_;
    vector<vector<Step>> schedules_;
    Fabric fabric_;
    int ranks_;
    NodeContainer nodes_;
    vector<vector<Port>> ports_;
    std::map<const NetDevice*, int> owner_;
    vector<vector<int>> route_, step_, open_;
    vector<vector<vector<int>>> in_;
    std::deque<Message> messages_;
    vector<int64_t> done_;
};

/** Jobs spelt out as levels, schedules, steps and messages; a line of times for each. */
void SpeltOut(std::istream& in, uint32_t payload, uint32_t header)
{
    vector<Level> levels;
    vector<vector<Step>> schedules;
    int ranks = 0;
    for (string line, word; std::getline(in, line);)
    {
        std::stringstream words(line);
        if (!(words >> word)) continue;
        if (word == "levels")
        {
            levels.clear();
            schedules.clear();
            for (ranks = 1; words >> word; ranks *= levels.back().size)
            {
                std::replace(word.begin(), word.end(), ':', ' ');
                std::stringstream parts(word);
                Level level;
                if (!(parts >> level.kind >> level.size >> level.rate >> level.hop)) NS_FATAL_ERROR("a level is kind:size:GBps:hop, but got " << word);
                levels.push_back(level);
            }
        }
        else if (word == "schedule") schedules.emplace_back();
        else if (word == "step" && !schedules.empty()) schedules.back().emplace_back(ranks);
        else if (word == "run")
        {
            vector<int64_t> times = Run(levels, schedules, payload, header).Times();
            std::cout << (times.empty() ? 0 : *std::max_element(times.begin(), times.end()));
            for (int64_t t : times) std::cout << ' ' << t;
            std::cout << std::endl;
        }
        else
        {
            int from, to;
            uint64_t bytes;
            std::stringstream numbers(line);
            bool good = bool(numbers >> from >> to >> bytes) && !schedules.empty() && !schedules.back().empty();
            if (!good || from < 0 || to < 0 || from >= ranks || to >= ranks || from == to) NS_FATAL_ERROR("not a message of a step: " << line);
            schedules.back().back().Add(from, to, bytes);
        }
    }
}

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
    bool batch = false, jobs = false;
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
    cmd.AddValue("batch", "read jobs from standard input, one a line", batch);
    cmd.AddValue("jobs", "read jobs from standard input, levels, schedules and messages spelt out", jobs);
    cmd.Parse(argc, argv);
    Time::SetResolution(Time::NS);
    if (jobs)
    {
        SpeltOut(std::cin, payload, header);
        return 0;
    }
    auto one = [&] {
        Job job{topology, collective, algorithm, Split<int>(sizes), Split<double>(rate), Split<double>(hop), bytes};
        return Run(Named(job), {Schedule(job)}, payload, header).Times()[0];
    };
    if (!batch) std::cout << one() << std::endl;
    for (string line; batch && std::getline(std::cin, line);)
    {
        std::stringstream in(line);
        if (in >> topology >> sizes >> rate >> hop >> collective >> algorithm >> bytes) std::cout << one() << std::endl;
    }
    return 0;
}
