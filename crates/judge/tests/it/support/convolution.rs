//! Accuracy of a convolution's reference: a task, and a check of its error.

use warpwright_judge::{Device, JudgeConfig, LocalJudge};
use warpwright_record::verdict::{Check, Profile, Stage};
use warpwright_task::Task;

use super::{Case, config, shared_judge};

const TASK: &str = r"
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3)

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.randn(8, 64, 64, 64)]
";

/// Right in shape and wrong in everything else: the first check says how exact the reference is.
const CANDIDATE: &str = r"
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3)

    def forward(self, x):
        return torch.empty(8, 64, 62, 62, device=x.device)
";

/// The first check of a verification under a profile.
pub(crate) fn check(device: Device, profile: Profile) -> Check {
    let own;
    let judge = if profile == config(device).profile {
        shared_judge(device)
    } else {
        own = LocalJudge::open(JudgeConfig { profile, ..config(device) }).unwrap();
        &own
    };
    let mut session = judge.task(&Task::from_source("convolution", TASK)).unwrap();
    let case = Case { task: TASK.into(), model: CANDIDATE.into(), kernels: Vec::new() };
    let verdict = session.judge(&case.candidate(), Stage::Verified).unwrap();
    verdict.checks.into_iter().next().unwrap()
}
