//! One task of the data set.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warpwright_task::similarity::OpGraph;
use warpwright_task::{MAX_SOURCE_BYTES, Task};

use super::measured::Measured;
use super::split::Combination;
use crate::proposal::{Proposal, Provenance};

/// One task of the data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Unique within the set, regardless of case; safe as a folder's name.
    pub name: String,
    /// Difficulty level, from 1; `None` in foreign data sets.
    pub level: Option<u8>,
    /// Source in KernelBench form.
    pub code: String,
    /// Operators in the order in which `forward` applies them, with repetition.
    pub ops: Vec<String>,
    /// Library and number of the operators: `torch#2`.
    pub data_source: String,
    /// Measurements; `None` in foreign data sets.
    pub measured: Option<Measured>,
    /// Its traced operator graph, if it could be traced: later runs compare with it.
    pub graph: Option<OpGraph>,
    /// Origin; `None` in foreign data sets.
    pub provenance: Option<Provenance>,
}

impl Row {
    /// The row of an admitted proposal.
    pub fn admitted(proposal: Proposal, measured: Measured, graph: Option<OpGraph>) -> Self {
        let task = proposal.task();
        Self {
            name: task.name,
            level: Some(proposal.level),
            code: proposal.source,
            data_source: data_source(&proposal.operators),
            ops: proposal.operators,
            measured: Some(measured),
            graph,
            provenance: Some(proposal.provenance),
        }
    }

    /// A row without measurements and provenance.
    pub fn unmeasured(name: &str, code: &str, ops: &[&str], data_source: &str) -> Self {
        Self {
            name: Task::from_source(name, code).name,
            level: None,
            code: code.to_owned(),
            ops: ops.iter().map(|op| (*op).to_owned()).collect(),
            data_source: data_source.to_owned(),
            measured: None,
            graph: None,
            provenance: None,
        }
    }

    /// The row as a task.
    pub fn task(&self) -> Task {
        let mut task = Task::from_source(&self.name, self.code.clone());
        task.level = self.level;
        task.ops = Some(self.ops.clone());
        task.data_source = Some(self.data_source.clone());
        task
    }

    /// The operators without their order: the unit of splitting.
    pub fn combination(&self) -> Combination {
        Combination::of(&self.ops)
    }

    /// Checks the row; an error names the fault.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("it has no name".to_owned());
        }
        if self.code.len() > MAX_SOURCE_BYTES {
            return Err(format!(
                "its source has {} bytes, more than the {MAX_SOURCE_BYTES} a task may have",
                self.code.len()
            ));
        }
        self.measured.as_ref().map_or(Ok(()), Measured::check)
    }
}

/// `torch#2` for two operators of torch, as in the released data set; with several packages, the
/// most frequent one.
fn data_source(ops: &[String]) -> String {
    let mut packages: BTreeMap<&str, usize> = BTreeMap::new();
    for op in ops {
        let package = op.split('.').next().filter(|first| *first == "transformers");
        *packages.entry(package.unwrap_or("torch")).or_insert(0) += 1;
    }
    let package = packages.into_iter().max_by_key(|(_, count)| *count);
    format!("{}#{}", package.map_or("torch", |(package, _)| package), ops.len())
}
