//! The dead-letter queue: jobs that several workers took and did not answer.

use super::bridge::{Asked, Bridge};
use super::files;
use super::link::{Link, LinkConfig, LinkError};
use super::notes::DeadLetter;
use super::worker::{json, unpacked};
use crate::job::Failed;

impl Bridge {
    /// The jobs of the dead-letter queue, oldest first. Entries that cannot be read are left out.
    pub fn dead_letters(config: &LinkConfig) -> Result<Vec<DeadLetter>, LinkError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut link = Link::open(config).await?;
            let state = link.dead_letters.info().await.map(|info| info.state.clone());
            let mut all = Vec::new();
            if let Ok(state) = state {
                for sequence in state.first_sequence..=state.last_sequence {
                    // Some may have expired.
                    let Ok(message) = link.dead_letters.get_raw_message(sequence).await else {
                        continue;
                    };
                    all.extend(serde_json::from_slice::<DeadLetter>(&message.payload));
                }
            }
            Ok(all)
        })
    }

    /// Puts a job into the dead-letter queue; the error that its listener gets.
    pub(super) async fn dead_letter(
        &self,
        asked: Option<Asked>,
        id: &str,
        deliveries: i64,
    ) -> Failed {
        let message =
            format!("failed to judge: {deliveries} workers took this job and did not answer");
        let hint = Some(format!(
            "the job is in the dead-letter queue as {id}; `warpwright worker --dead-letters DIR` writes it to a folder"
        ));
        let Some((order, workers)) = asked else {
            return Failed::Infrastructure { message, hint: None };
        };
        let get = async |file| files::get(&self.link, &self.link.files, file).await;
        let job = match (get(&order.task).await, get(&order.candidate).await) {
            (Ok(task), Ok(candidate)) => unpacked(&task, &candidate, &order).ok(),
            _ => None,
        };
        let files = job
            .iter()
            .flat_map(|job| job.candidate.files())
            .map(|(name, bytes)| (name.clone(), String::from_utf8_lossy(bytes).into_owned()));
        let letter = DeadLetter {
            id: id.to_owned(),
            files: files.collect(),
            reference: job.as_ref().map(|job| job.task.source.clone()).unwrap_or_default(),
            task: order.name,
            stage: order.stage,
            deliveries,
            workers,
        };
        self.keep(letter).await;
        Failed::Infrastructure { message, hint }
    }

    async fn keep(&self, letter: DeadLetter) {
        let Some(kind) = self.kind() else { return };
        let id = letter.id.clone();
        let subject = self.link.dead_letter_subject(&kind.word());
        let _ = self.link.publish(subject, json(&letter), Some(&id)).await;
    }
}
