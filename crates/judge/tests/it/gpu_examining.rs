//! Examines tasks without a candidate on a GPU. `make test-gpu` runs these tests.

use crate::support::{body, config};
use warpwright_judge::{
    Bar, BaselineSet, Device, JudgeConfig, JudgeError, LocalJudge, SessionPool, Sharing,
};
use warpwright_task::Task;

fn task(name: &str, forward: &str) -> Task {
    let source = format!(
        "import ctypes\n\
         import torch\n\n\n\
         class Model(torch.nn.Module):\n\
         \x20   def __init__(self):\n\
         \x20       super().__init__()\n\
         \x20       self.scale = torch.nn.Parameter(torch.rand(1024) + 0.5)\n\n\
         \x20   def forward(self, x, y):\n{}\n\n\
         def get_inputs():\n\
         \x20   return [torch.randn(4096, 1024), torch.randn(4096, 1024)]\n",
        body(forward)
    );
    Task::from_source(name, source)
}

/// What an operator does to its process and its context, it does to nobody else's.
#[test]
fn gpu_a_task_that_crashes_affects_no_other() {
    let config = JudgeConfig { baselines: BaselineSet::Plain, ..config(Device::Cuda(0)) };
    let judge = LocalJudge::open(config).unwrap();
    let pool = SessionPool::new(&judge);
    let sound = task("sound", "return torch.relu(x * self.scale + y)");
    let broken = [
        task("asserts", "return x[torch.full((4,), 10**9, device=x.device)] + y[:4]"),
        task("crashes", "return ctypes.string_at(0)"),
    ];
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| pool.examine(&sound, None, Bar::Sound, Sharing::Own));
        for task in &broken {
            let refused = pool.examine(task, None, Bar::Sound, Sharing::Own);
            assert!(matches!(refused, Err(JudgeError::Reference { .. })), "{refused:?}");
        }
        beside.join().unwrap().unwrap();
    });
    let found = pool.examine(&sound, None, Bar::Sound, Sharing::Own).unwrap();
    assert!(found.objections.is_empty(), "{found:?}");
    let compiled: Vec<&str> = found.compiled_ms.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(compiled, ["compile"]);
    assert!(found.eager_ms > 0.01 && found.eager_ms < 10.0, "{found:?}");
    assert!(found.head_room().unwrap() > 0.9, "{found:?}");
}

/// One context and one warm compiler for many tasks: the same is found, and times are the same.
#[test]
fn gpu_reused_processes_examine_like_new_ones() {
    let config = JudgeConfig { baselines: BaselineSet::Plain, ..config(Device::Cuda(0)) };
    let judge = LocalJudge::open(config).unwrap();
    let pool = SessionPool::to_examine(&judge);
    let tasks = [
        task("sum", "return torch.relu(x * self.scale + y).sum(1)"),
        task("product", "return torch.softmax(x @ y.T, 1)"),
        task("ignores", "return torch.tanh(x * self.scale)"),
        task("bends", "return torch.nn.functional.gelu(x + y) * self.scale"),
    ];
    let look = |processes| {
        tasks.each_ref().map(|task| pool.examine(task, None, Bar::Sound, processes).unwrap())
    };
    let alone = look(Sharing::Own);
    for _ in 0..2 {
        let shared = look(Sharing::Shared);
        for (task, (own, other)) in tasks.iter().zip(alone.iter().zip(&shared)) {
            assert_eq!(own.objections.len(), other.objections.len(), "{}", task.name);
            assert_eq!(own.graph, other.graph);
            if own.objections.is_empty() {
                let apart = own.best_ms() / other.best_ms();
                assert!((0.8..1.25).contains(&apart), "{}: {own:?}, {other:?}", task.name);
            }
        }
    }
    assert_eq!(alone.each_ref().map(|found| found.objections.is_empty())[2..], [false, true]);
}
