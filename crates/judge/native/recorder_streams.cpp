// Streams, events and captured graphs. A graph is a list of operations that a launch appends.
#include <algorithm>
#include <unordered_set>

#include "recorder_timeline.h"

namespace recorder {

struct Graph {
    struct Captured {
        const Stream* stream;
        std::vector<uint32_t> after;
        Operation operation;
    };
    const Stream* origin;
    uint64_t number;
    bool ended;
    std::vector<Captured> operations;
    Timeline timeline;
};

struct Stream {
    bool waits_for_default;
    unsigned flags;
    int priority;
    Graph* graph;  // being captured
};

namespace {

// Limits of a plan.
constexpr uint32_t kMostNodes = 4096, kMostStreams = 16;
constexpr size_t kMostBytes = size_t(8) << 20;

struct Event {
    Clock clock;
    Phase phase;
    Graph* graph;
};

Stream default_stream = {true, cudaStreamDefault, 0, nullptr};
// Handles are never reused, so nothing is destroyed.
std::unordered_set<Stream*> streams;
std::unordered_set<Graph*> graphs;
std::vector<Node> all;
uint32_t counts[kPhases];
Timeline timelines[kPhases];
// Per phase: calls that use streams of their own, but in the same way, are recorded alike.
std::map<const Stream*, uint32_t> numbers[kPhases];
std::vector<uint32_t> joined;
// Whether the phase asked a stream or an event if it is done.
bool polled;
size_t bytes_so_far = 0;
cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// Constants that are set while the model is constructed belong to what runs once.
Phase phase_of_nodes() { return phase() == Phase::Init ? Phase::Prepare : phase(); }
Timeline& timeline() { return timelines[static_cast<int>(phase_of_nodes())]; }

// The default stream waits for the others and they wait for it, unless they were made not to.
void order_by_default_stream(const Stream& stream) {
    Timeline& order = timeline();
    if (&stream == &default_stream) {
        for (const Stream* other : streams)
            if (other->waits_for_default) order.wait(stream, order.reached(*other));
    } else if (stream.waits_for_default) {
        order.wait(stream, order.reached(default_stream));
    }
}

uint32_t number_of(const Stream& stream, Phase when) {
    auto& known = numbers[static_cast<int>(when)];
    known.emplace(&default_stream, 0);
    const uint32_t number = known.emplace(&stream, known.size()).first->second;
    if (number == kMostStreams) refuse("uses more than " + std::to_string(kMostStreams) + " streams in a call");
    return number;
}

size_t bytes_of(const Operation& operation) {
    if (const Upload* upload = std::get_if<Upload>(&operation)) return upload->bytes.size();
    const Launch* launch = std::get_if<Launch>(&operation);
    size_t bytes = 0;
    if (launch)
        for (const std::string& argument : launch->args) bytes += argument.size();
    return bytes;
}

uint32_t append(const Stream& stream, Operation operation) {
    const Phase when = phase_of_nodes();
    const uint32_t number = counts[static_cast<int>(when)]++;
    if (number == kMostNodes)
        refuse("makes more than " + std::to_string(kMostNodes) + " launches and copies in a call");
    bytes_so_far += bytes_of(operation);
    if (bytes_so_far > kMostBytes) refuse("passes more than 8 MiB of arguments and uploads to the device");
    all.push_back({when, number_of(stream, when), timeline().add(stream), std::move(operation)});
    return number;
}

bool is_constant(const Operation& operation) {
    const Upload* upload = std::get_if<Upload>(&operation);
    return upload && upload->to.variable;
}

void close_before(const Operation& operation) {
    if (!memory_open() || is_constant(operation)) return;
    if (phase() == Phase::Init) refuse("launches kernels while it is constructed: do that in prepare()");
    close_memory();
}

Stream* made(unsigned flags, int priority) {
    auto* stream = new Stream{flags != cudaStreamNonBlocking, flags, priority, nullptr};
    streams.insert(stream);
    return stream;
}

void replay(const Graph& graph, Stream& target) {
    Timeline& order = timeline();
    const Clock start = order.reached(target);
    std::vector<Clock> clocks;
    for (const Graph::Captured& captured : graph.operations) {
        const Stream& stream = captured.stream == graph.origin ? target : *captured.stream;
        order.wait(stream, start);
        for (uint32_t earlier : captured.after) order.wait(stream, clocks[earlier]);
        clocks.push_back(order.clock(append(stream, captured.operation)));
    }
    for (const Clock& clock : clocks) order.wait(target, clock);
}

cudaError_t wait_for_event(Stream& stream, const Event& event) {
    if (event.graph) {
        if (&stream == &default_stream) return fail(cudaErrorStreamCaptureImplicit);
        if (event.graph->ended || (stream.graph && stream.graph != event.graph))
            return fail(cudaErrorStreamCaptureIsolation);
        stream.graph = event.graph;
        stream.graph->timeline.wait(stream, event.clock);
        return cudaSuccess;
    }
    if (stream.graph) return fail(event.clock.empty() ? cudaSuccess : cudaErrorStreamCaptureIsolation);
    // What an earlier call recorded is over.
    if (event.phase == phase_of_nodes()) timeline().wait(stream, event.clock);
    return cudaSuccess;
}

Event* as_event(cudaEvent_t handle) { return reinterpret_cast<Event*>(handle); }
Graph* as_graph(void* handle) {
    const auto found = graphs.find(static_cast<Graph*>(handle));
    return found == graphs.end() ? nullptr : *found;
}

// Ends the capture of every stream that takes part. Whether all of them were joined.
bool end_capture(Graph& graph) {
    graph.ended = true;
    for (Stream* stream : streams)
        if (stream->graph == &graph) stream->graph = nullptr;
    return covers(graph.timeline.reached(*graph.origin), graph.timeline.all());
}

}  // namespace

const std::vector<Node>& nodes() { return all; }
uint32_t nodes_of(Phase phase) { return counts[static_cast<int>(phase)]; }
bool is_capturing(const Stream& stream) { return stream.graph != nullptr; }
bool any_capturing() {
    return std::any_of(graphs.begin(), graphs.end(), [](const Graph* graph) { return !graph->ended; });
}
bool runs_on_host(const Stream& stream) { return memory_open() && !stream.graph; }

Stream* find_stream(cudaStream_t handle) {
    if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return &default_stream;
    const auto found = streams.find(reinterpret_cast<Stream*>(handle));
    return found == streams.end() ? nullptr : *found;
}

cudaError_t record(Stream& stream, Operation operation) {
    if (phase() == Phase::Idle) return fail(cudaErrorNotSupported);
    if (stream.graph) {
        Graph& graph = *stream.graph;
        graph.operations.push_back({&stream, graph.timeline.add(stream), std::move(operation)});
        return cudaSuccess;
    }
    close_before(operation);
    order_by_default_stream(stream);
    append(stream, std::move(operation));
    return cudaSuccess;
}

void wait_for_all() { timeline().wait_everywhere(timeline().all()); }

// Which of the reasons it is: what runs on after a call that nobody waited for comes too late in every tier.
static const char* not_joined() {
    if (phase() != Phase::First && phase() != Phase::Second)
        return "a stream is not joined before __init__ or prepare() ends";
    if (polled)
        return "a stream is polled (cudaStreamQuery, cudaEventQuery) and not joined before the call ends";
    return "a stream is not joined before the call ends";
}

void end_of_phase() {
    order_by_default_stream(default_stream);
    if (!covers(timeline().reached(default_stream), timeline().all()))
        refuse(not_joined());
    polled = false;
    if (any_capturing()) refuse("a stream is still being captured when the call ends");
    if (phase() == Phase::Second) joined = timeline().add(default_stream);
}

const std::vector<uint32_t>& joined_at_end() { return joined; }

}  // namespace recorder

using namespace recorder;

#define FIND(stream, handle)                                   \
    enter(__func__);                                           \
    Stream* stream = find_stream(handle);                      \
    if (!stream) return fail(cudaErrorInvalidResourceHandle)

extern "C" int recorder_capturing(cudaStream_t handle) {
    const Stream* stream = find_stream(handle);
    return stream && is_capturing(*stream);
}

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
    enter(__func__);
    *handle = reinterpret_cast<cudaStream_t>(made(flags, priority));
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
    return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) {
    return cudaStreamCreateWithPriority(handle, cudaStreamDefault, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    FIND(stream, handle);
    return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    FIND(stream, handle);
    *priority = stream->priority;
    return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
    FIND(stream, handle);
    *flags = stream->flags;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    FIND(stream, handle);
    polled = true;
    return fail(stream->graph ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    FIND(stream, handle);
    if (stream->graph) return fail(cudaErrorStreamCaptureUnsupported);
    order_by_default_stream(*stream);
    timeline().wait_everywhere(timeline().reached(*stream));
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    enter(__func__);
    wait_for_all();
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    FIND(stream, handle);
    return wait_for_event(*stream, *as_event(event));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    enter(__func__);
    *event = reinterpret_cast<cudaEvent_t>(new Event{{}, Phase::Idle, nullptr});
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
    FIND(stream, handle);
    if (flags != cudaEventRecordDefault) return refused("records an event that is external to a graph");
    if (!stream->graph) order_by_default_stream(*stream);
    Timeline& order = stream->graph ? stream->graph->timeline : timeline();
    *as_event(event) = {order.reached(*stream), phase_of_nodes(), stream->graph};
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    return cudaEventRecordWithFlags(event, handle, cudaEventRecordDefault);
}
cudaError_t cudaEventQuery(cudaEvent_t) {
    polled = true;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    enter(__func__);
    const Event& event = *as_event(handle);
    if (event.graph) return fail(cudaErrorStreamCaptureUnsupported);
    if (event.phase == phase_of_nodes()) timeline().wait_everywhere(event.clock);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) {
    return refused("measures time on the device (cudaEventElapsedTime)");
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
    FIND(stream, handle);
    if (stream == &default_stream) return fail(cudaErrorStreamCaptureUnsupported);
    if (stream->graph) return fail(cudaErrorIllegalState);
    stream->graph = new Graph{stream, graphs.size() + 1, false, {}, {}};
    graphs.insert(stream->graph);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
    FIND(stream, handle);
    Graph* graph = stream->graph;
    if (!graph) return fail(cudaErrorIllegalState);
    if (graph->origin != stream) return fail(cudaErrorStreamCaptureUnmatched);
    if (!end_capture(*graph)) return fail(cudaErrorStreamCaptureUnjoined);
    *out = reinterpret_cast<cudaGraph_t>(graph);
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    FIND(stream, handle);
    *status = stream->graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData**, size_t* count) {
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies, size_t* count) {
#endif
    FIND(stream, handle);
    *status = stream->graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    if (id) *id = stream->graph ? stream->graph->number : 0;
    if (graph) *graph = reinterpret_cast<cudaGraph_t>(stream->graph);
    if (stream->graph && dependencies) return refused("asks for the nodes of a graph (cudaStreamGetCaptureInfo)");
    if (count) *count = 0;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, capture_mode);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
    const Graph* graph = as_graph(handle);
    if (!graph) return fail(cudaErrorInvalidValue);
    if (nodes) return refused("asks for the nodes of a graph (cudaGraphGetNodes)");
    *count = graph->operations.size();
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t handle, unsigned long long) {
    enter(__func__);
    Graph* graph = as_graph(handle);
    if (!graph || !graph->ended) return fail(cudaErrorInvalidValue);
    *exec = reinterpret_cast<cudaGraphExec_t>(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    FIND(stream, handle);
    const Graph* graph = as_graph(exec);
    if (!graph) return fail(cudaErrorInvalidValue);
    if (stream->graph) return refused("launches a graph while it captures another");
    if (phase() == Phase::Idle) return fail(cudaErrorNotSupported);
    for (const auto& captured : graph->operations) close_before(captured.operation);
    order_by_default_stream(*stream);
    replay(*graph, *stream);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

}  // extern "C"
