//! The text of a chain's file.

use std::collections::BTreeSet;

use super::{AT_ONCE, Call, aligned};
use crate::ir::{Graph, NodeId};

/// The contents of the file.
pub(super) struct Text<'c> {
    pub(super) name: &'c str,
    pub(super) graph: &'c Graph,
    pub(super) calls: &'c [Call],
    pub(super) held: &'c [NodeId],
    pub(super) given: &'c [NodeId],
    pub(super) results: &'c [NodeId],
}

impl Text<'_> {
    /// Parameters and their names.
    fn parameters(&self, nodes: &[NodeId], letter: char, constant: bool) -> Vec<(String, String)> {
        let start = if constant { "const " } else { "" };
        let parameter = |(i, n): (usize, &NodeId)| {
            let name = format!("{letter}{i}");
            (format!("{start}{}* {name}", self.graph.dtype(*n).storage()), name)
        };
        nodes.iter().enumerate().map(parameter).collect()
    }

    /// The file's text. With the sizes of inputs and results, it captures and replays a CUDA graph.
    pub(super) fn file(&self, launches: &[String], work: i64, copied: Option<&Vec<i64>>) -> String {
        let held = self.parameters(self.held, 'w', true);
        let given = self.parameters(self.given, 'x', true);
        let results = self.parameters(self.results, 'y', false);
        let list = |of: &[(String, String)]| -> String {
            of.iter().map(|(_, name)| format!("{name}, ")).collect::<Vec<_>>().concat()
        };
        let typed = |of: &[(String, String)]| -> String {
            of.iter().map(|(parameter, _)| format!(", {parameter}")).collect::<Vec<_>>().concat()
        };
        let mut out = String::from("// Every kernel of forward, launched in order by one call");
        out.push_str(if copied.is_some() {
            ", and replayed as a graph\n// from the second call on.\n"
        } else {
            ".\n"
        });
        out.push_str(
            "// What is kept from call to call: addresses of weights, by model, and memory for what lies\n\
             // between kernels.\n#include <cuda_runtime.h>\n",
        );
        let types: BTreeSet<&str> = self
            .calls
            .iter()
            .flat_map(|call| call.signature.types.iter().map(String::as_str))
            .collect();
        for (part, header) in [("__half", "cuda_fp16.h"), ("bfloat16", "cuda_bf16.h")] {
            if types.iter().any(|kind| kind.contains(part)) {
                out.push_str(&format!("#include <{header}>\n"));
            }
        }
        out.push_str("#include <cstddef>\n#include <cstdint>\n#include <vector>\n\n");
        let mut declared = BTreeSet::new();
        for Call { signature: s, .. } in self.calls {
            if declared.insert(&s.name) {
                let types: Vec<String> = s.types.iter().map(|kind| format!("{kind}, ")).collect();
                let types = types.concat();
                out.push_str(&format!(
                    "extern \"C\" {} {}_launcher({types}cudaStream_t);\n",
                    s.returns, s.name
                ));
            }
        }
        let count = held.len().max(1);
        let total = work + copied.map_or(0, |c| c.iter().map(|b| aligned(*b)).sum::<i64>());
        let purpose = if copied.is_some() {
            "between kernels, and of copies of inputs and results"
        } else {
            "between kernels"
        };
        out.push_str(&format!(
            "
namespace {{
constexpr size_t kBytes = {total};  // {purpose}

struct Model {{
  const void* held[{count}];
{}}};

std::vector<Model>& models() {{
  static std::vector<Model> all;
  return all;
}}

char* memory() {{
  static char* const made = [] {{
    void* got = nullptr;
    return cudaMalloc(&got, kBytes ? kBytes : 1) == cudaSuccess ? (char*)got : (char*)nullptr;
  }}();
  return made;
}}

int run(const void* const* held, const void* const* given, void* const* results, char* work, cudaStream_t stream) {{
  (void)held, (void)given, (void)results, (void)work;
",
            if copied.is_some() {
                "  bool warm, cannot;\n  cudaGraphExec_t replay;\n"
            } else {
                ""
            }
        ));
        for launch in launches {
            out.push_str(&format!("  {launch}\n"));
        }
        out.push_str("  return 0;\n}\n");
        if let Some(copied) = copied {
            out.push_str(&self.capture(work, copied));
        }
        out.push_str("}  // namespace\n\n");
        out.push_str(&hold(self.name, &held, copied.is_some()));
        out.push_str(&format!(
            "extern \"C\" int {}_launcher(int model{}{}, cudaStream_t stream) {{
  if (model < 0 || (size_t)model >= models().size()) return (int)cudaErrorInvalidValue;
  Model& m = models()[model];
  char* const work = memory();
  if (!work) return (int)cudaErrorMemoryAllocation;
  const void* const given[] = {{{}nullptr}};
  void* const results[] = {{{}nullptr}};
",
            self.name,
            typed(&given),
            typed(&results),
            list(&given),
            list(&results),
        ));
        match copied {
            None => out.push_str("  return run(m.held, given, results, work, stream);\n}\n"),
            Some(_) => out.push_str(
                "  if (!m.warm || (!m.replay && !capture(m, work))) {
    m.warm = true;
    return run(m.held, given, results, work, stream);
  }
  return replay(m, given, results, work, stream);
}
",
            ),
        }
        out
    }

    /// Functions that capture the chain and replay it.
    fn capture(&self, work: i64, copied: &[i64]) -> String {
        let mut offsets = vec![work];
        for bytes in copied {
            offsets.push(offsets.last().copied().unwrap_or(work) + aligned(*bytes));
        }
        let inputs = self.given.len();
        let at = |range: std::ops::Range<usize>| -> String {
            range.map(|i| format!("work + {}, ", offsets[i])).collect::<Vec<_>>().concat()
        };
        let copy = |i: usize| {
            let (to, from) = if i < inputs {
                (format!("work + {}", offsets[i]), format!("given[{i}]"))
            } else {
                (format!("results[{}]", i - inputs), format!("work + {}", offsets[i]))
            };
            format!(
                "  if (cudaError_t error = cudaMemcpyAsync({to}, {from}, {}, cudaMemcpyDeviceToDevice, stream)) return (int)error;\n",
                copied[i]
            )
        };
        let before: String = (0..inputs).map(copy).collect();
        let after: String = (inputs..copied.len()).map(copy).collect();
        format!(
            "
// Whether the chain is a graph now. One that cannot be captured is not tried again.
bool capture(Model& m, char* work) {{
  if (m.cannot) return false;
  const void* const given[] = {{{}nullptr}};
  void* const results[] = {{{}nullptr}};
  cudaStream_t own = nullptr;
  cudaGraph_t graph = nullptr;
  bool good = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == cudaSuccess;
  if (good && cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {{
    good = run(m.held, given, results, work, own) == 0;
    good = cudaStreamEndCapture(own, &graph) == cudaSuccess && good;
    good = good && cudaGraphInstantiate(&m.replay, graph, 0) == cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
  }} else {{
    good = false;
  }}
  if (own) cudaStreamDestroy(own);
  if (!good) {{
    m.replay = nullptr;
    m.cannot = true;
    cudaGetLastError();  // it is told by going on without
  }}
  return good;
}}

int replay(Model& m, const void* const* given, void* const* results, char* work, cudaStream_t stream) {{
{before}  if (cudaError_t error = cudaGraphLaunch(m.replay, stream)) return (int)error;
{after}  return 0;
}}
",
            at(0..inputs),
            at(inputs..copied.len()),
        )
    }
}

/// Functions that receive the addresses of weights; the first one clears the earlier addresses.
fn hold(name: &str, held: &[(String, String)], replays: bool) -> String {
    let mut out = String::new();
    let parts = held.len().div_ceil(AT_ONCE).max(1);
    for part in 0..parts {
        let from = part * AT_ONCE;
        let here = &held[from..held.len().min(from + AT_ONCE)];
        let parameters: Vec<String> =
            here.iter().map(|(parameter, _)| format!(", {parameter}")).collect();
        out.push_str(&format!(
            "extern \"C\" int {name}_hold_{part}_launcher(int model{}) {{\n  \
             if (model < 0) return (int)cudaErrorInvalidValue;\n",
            parameters.concat()
        ));
        if part == 0 {
            out.push_str("  if ((size_t)model >= models().size()) models().resize(model + 1);\n");
            if replays {
                out.push_str(
                    "  if (Model& old = models()[model]; old.replay) cudaGraphExecDestroy(old.replay);\n",
                );
            }
            out.push_str("  models()[model] = Model{};\n");
        } else {
            out.push_str(
                "  if ((size_t)model >= models().size()) return (int)cudaErrorInvalidValue;\n",
            );
        }
        for (i, (_, weight)) in here.iter().enumerate() {
            out.push_str(&format!("  models()[model].held[{}] = {weight};\n", from + i));
        }
        out.push_str("  return 0;\n}\n\n");
    }
    out
}
