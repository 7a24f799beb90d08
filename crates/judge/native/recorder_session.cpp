// Phases, refusals, and the answer of a process that ends early.
#include <cxxabi.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "recorder.h"

namespace recorder {
namespace {

Phase current = Phase::Idle;
pthread_t owner;
int channel = -1;
char tail[256];
char note[512] = "";
std::atomic_flag answered = ATOMIC_FLAG_INIT;

// A frame in memory of its own: a signal handler may not allocate.
class Frame {
  public:
    void text(const char* text) {
        for (; *text; text++) put(*text);
    }
    void escaped(const char* text) {
        for (; *text && used_ < kLimit; text++) {
            const unsigned char c = static_cast<unsigned char>(*text);
            if (c == '"' || c == '\\') put('\\');
            put(c < 0x20 || c >= 0x7f ? '?' : static_cast<char>(c));
        }
    }
    void send(int to) {
        const uint32_t length = static_cast<uint32_t>(used_ - 4);
        for (int i = 0; i < 4; i++) data_[i] = static_cast<char>(length >> (8 * i));
        for (size_t at = 0; at < used_;) {
            const ssize_t sent = write(to, data_ + at, used_ - at);
            if (sent <= 0) return;
            at += static_cast<size_t>(sent);
        }
    }

  private:
    static constexpr size_t kLimit = 4096;
    void put(char c) {
        if (used_ < sizeof data_) data_[used_++] = c;
    }
    char data_[kLimit + 2048] = {};
    size_t used_ = 4;
};

[[noreturn]] void answer_and_end(const char* reason, const char* detail) {
    static Frame frame;
    // Another thread may already be writing its reason.
    if (answered.test_and_set()) pause();
    frame.text("{\"recording\":{\"version\":1,\"refused\":\"");
    frame.escaped(reason);
    if (*detail) {
        frame.text(" (");
        frame.escaped(detail);
        frame.text(")");
    }
    frame.text(
        "\",\"modules\":[],\"kernels\":[],\"tensor_maps\":[],\"blocks\":[],\"nodes\":[],\"weights\":[],"
        "\"init\":[],\"inputs\":[[],[]],\"outputs\":{\"tree\":null,\"tensors\":[]}}");
    frame.text(tail);
    frame.send(channel);
    _exit(0);
}

void touched(int signal, siginfo_t* info, void*) {
    if (current == Phase::Idle || !is_device(info->si_addr)) {
        // The instruction faults again, and ends the process as it would have.
        ::signal(signal, SIG_DFL);
        return;
    }
    const bool preparing = current == Phase::Prepare;
    answer_and_end(preparing ? "prepare() computes with torch after it launched kernels"
                             : "reads or writes device memory on the host",
                   note);
}

void watch_memory() {
    struct sigaction action = {};
    action.sa_sigaction = touched;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

Phase phase() { return current; }

void refuse(const std::string& reason) {
    if (current != Phase::Idle) answer_and_end(reason.c_str(), "");
}

cudaError_t refused(const std::string& reason) {
    refuse(reason);
    return fail(cudaErrorNotSupported);
}

void enter(const char* function) {
    if (current != Phase::Idle && !pthread_equal(pthread_self(), owner))
        refuse(std::string("calls ") + function + " from a second thread");
}

std::string readable(const char* symbol) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string text = status == 0 ? demangled : symbol;
    std::free(demangled);
    if (text.size() > 160) text = text.substr(0, 157) + "...";
    return text;
}

}  // namespace recorder

using namespace recorder;

// Answers go to this descriptor; `end` completes the JSON of an answer behind its recording.
extern "C" void recorder_begin(int descriptor, const char* end) {
    channel = descriptor;
    owner = pthread_self();
    strncpy(tail, end, sizeof tail - 1);
    watch_memory();
}

extern "C" void recorder_phase(int to) {
    if (current != Phase::Idle) end_of_phase();
    if (to >= static_cast<int>(Phase::Inputs)) close_memory();
    current = static_cast<Phase>(to);
}

// What the process is doing: completes the reason where memory is touched.
extern "C" void recorder_note(const char* text) { strncpy(note, text, sizeof note - 1); }

extern "C" void recorder_refuse(const char* reason) { refuse(reason); }

// Where every function goes that is not here (stubs made for all exported names).
extern "C" int recorder_unknown(const char* function) {
    refuse(std::string("calls ") + function);
    return cudaErrorNotSupported;
}
