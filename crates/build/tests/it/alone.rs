//! Copies of libraries for their kernels alone: nothing runs when they are loaded, and recorded launches run in them.

use warpwright_build::{Artifact, KernelsAlone, Target};

use crate::bench::{Bench, bench, built, candidate};

/// Needs its initialisers, keeps something in a variable of the device, and uploads to another.
const SCALE: &str = r#"#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
struct Loud {
    Loud() { puts("initialised"); fflush(stdout); }
    ~Loud() { puts("finished"); fflush(stdout); }
};
static Loud loud;
static std::vector<float> weights(3, 2.0f);
__constant__ float scale[2];
__device__ int start = 40;
__global__ void scaled(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scale[1] * i + start;
}
extern "C" int scaled_launcher(float* y, int n, cudaStream_t stream) {
    const float both[2] = {1, getenv("ABSENT") ? 0 : weights[2]};
    cudaMemcpyToSymbol(scale, both, sizeof(both));
    scaled<<<(n + 63) / 64, 64, 0, stream>>>(y, n);
    return (int)cudaGetLastError();
}
"#;

/// Records launches and uploads of a library, and runs them in its copy; see hostcuda/record.h.
const RECORDING: &str = r#"
import ctypes, json, struct
from pathlib import Path
u64 = ctypes.c_uint64
HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

def base(library):
    return u64.from_address(library._handle).value

def recorded(library, call):
    start, nodes = base(library), []
    def launch(_, at):
        _, entry, *geometry = struct.unpack("QQ6IQ", ctypes.string_at(at, 48))
        _, arguments, count = struct.unpack("3Q", ctypes.string_at(at + 48, 24))
        places = [struct.unpack("QQ", ctypes.string_at(arguments + 16 * i, 16)) for i in range(count)]
        held = [ctypes.string_at(*place).hex() for place in places]
        nodes.append(["launch", entry - start, geometry, held])
        return 0
    def copy(_, at):
        to, source, _, _, width = struct.unpack("5Q", ctypes.string_at(at, 40))
        nodes.append(["copy", to - start, ctypes.string_at(source, width).hex()])
        return 0
    hooks = [HOOK(launch), HOOK(lambda *_: 801), HOOK(copy), *[HOOK(lambda *_: 801)] * 4]
    addresses = [ctypes.cast(hook, ctypes.c_void_p).value for hook in hooks]
    recorder = ctypes.create_string_buffer(struct.pack("IIQ7Q", 1, 72, 0, *addresses))
    assert library.hostcuda_set_recorder(recorder) == 0
    call()
    library.hostcuda_set_recorder(None)
    return nodes

def run(library, nodes, fresh):
    start = base(library)
    for kind, offset, what, *more in nodes:
        if kind == "copy":
            ctypes.memmove(start + offset, bytes.fromhex(what), len(what) // 2)
            continue
        magic, entry, count = struct.unpack("8sQQ", ctypes.string_at(start + offset, 24))
        given = [fresh() if len(a) == 16 else bytes.fromhex(a) for a in more[0]]
        held = [ctypes.create_string_buffer(a, len(a)) for a in given]
        assert magic == b"HCENTRY1" and count == len(held)
        pointers = (ctypes.c_void_p * count)(*map(ctypes.addressof, held))
        geometry = ctypes.create_string_buffer(struct.pack("6IQ", *what))
        assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(entry)(geometry, pointers) == 0
"#;

/// What `call`, a Python expression over `library`, records. `prelude` comes first.
pub(crate) fn recorded(
    bench: &Bench,
    artifact: &Artifact,
    name: &str,
    (prelude, call): (&str, &str),
) -> String {
    let script = format!(
        "{prelude}\n{RECORDING}
library = ctypes.CDLL(str(Path(ARTIFACT) / {name:?}))
print(json.dumps(recorded(library, lambda: {call})))
"
    );
    bench.python(artifact, &script)
}

/// Runs a recording in the copy of a library, in a process that has neither torch nor the library itself. Every
/// argument of eight bytes becomes the address of 2000 floats that are 1; what the last of them have become is
/// returned.
pub(crate) fn run_alone(
    bench: &Bench,
    artifact: &Artifact,
    name: &str,
    recording: &str,
) -> Vec<f64> {
    let KernelsAlone::File(file) = &artifact.kernels_alone[name] else {
        panic!("{:?}", artifact.kernels_alone)
    };
    let script = format!(
        "{RECORDING}
library = ctypes.CDLL(str(Path(ARTIFACT) / {file:?}))
blocks = []
def fresh():
    blocks.append((ctypes.c_float * 2000)(*[1] * 2000))
    return struct.pack('Q', ctypes.addressof(blocks[-1]))
run(library, json.loads({recording:?}), fresh)
assert 'torch' not in Path('/proc/self/maps').read_text()
print(json.dumps(list(blocks[-1])))
"
    );
    let said = bench.python(artifact, &script);
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("more than numbers: {said}"))
}

#[test]
fn kernels_run_without_the_library_initialisers() {
    let bench = bench();
    let files = [("kernels/scale.cu", SCALE)];
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    let call = "library.scaled_launcher(None, 99, None)";
    let said = recorded(&bench, &artifact, "libkernels.so", ("", call));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines[0], lines[2]), ("initialised", "finished"), "positive control");
    let numbers = run_alone(&bench, &artifact, "libkernels.so", lines[1]);
    let expected: Vec<f64> = (0..99).map(|i| f64::from(2 * i + 40)).chain([1.0]).collect();
    assert_eq!(numbers[..100], expected);
    let again = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    assert_eq!((again.cached, again.kernels_alone), (true, artifact.kernels_alone));
}

/// A function that the loader calls for an address would run before anything confines the process.
#[test]
fn functions_chosen_at_load_keep_their_host_code() {
    let chosen = r#"
extern "C" {
static int one() { return 1; }
static int (*choose())() { return one; }
int chosen() __attribute__((ifunc("choose")));
}
"#;
    let text =
        SCALE.replace("extern \"C\" int scaled", &format!("{chosen}extern \"C\" int scaled"));
    let files = [("kernels/scale.cu", text.as_str())];
    let bench = bench();
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    let KernelsAlone::Refused(why) = &artifact.kernels_alone["libkernels.so"] else {
        panic!("{:?}", artifact.kernels_alone)
    };
    assert!(why.contains("when it is loaded"), "{why}");
    assert!(!artifact.dir.join("alone/libkernels.so").exists());
}
