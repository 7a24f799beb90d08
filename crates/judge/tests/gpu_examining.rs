//! Tasks without a candidate on a GPU, for real. Run by `make test-gpu` on a machine that has one.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use support::{body, config};
use warpwright_judge::{
    Bar, BaselineSet, Device, JudgeConfig, JudgeError, LocalJudge, SessionPool,
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
fn gpu_a_task_that_breaks_its_device_or_its_process_harms_no_other() {
    let config = JudgeConfig { baselines: BaselineSet::Plain, ..config(Device::Cuda(0)) };
    let judge = LocalJudge::open(config).unwrap();
    let pool = SessionPool::new(&judge);
    let sound = task("sound", "return torch.relu(x * self.scale + y)");
    let broken = [
        task("asserts", "return x[torch.full((4,), 10**9, device=x.device)] + y[:4]"),
        task("crashes", "return ctypes.string_at(0)"),
    ];
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| pool.examine(&sound, None, Bar::Sound));
        for task in &broken {
            let refused = pool.examine(task, None, Bar::Sound);
            assert!(matches!(refused, Err(JudgeError::Reference { .. })), "{refused:?}");
        }
        beside.join().unwrap().unwrap();
    });
    let found = pool.examine(&sound, None, Bar::Sound).unwrap();
    assert!(found.objections.is_empty(), "{found:?}");
    let compiled: Vec<&str> = found.compiled_ms.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(compiled, ["compile"]);
    assert!(found.eager_ms > 0.01 && found.eager_ms < 10.0, "{found:?}");
    assert!(found.head_room().unwrap() > 0.9, "{found:?}");
}
