//! Checks the keys of a configuration: a key that does not exist is refused with the key that was meant. Keys of verl,
//! Hugging Face and TRL are answered with ours.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use self::answers::answer;
pub(super) use self::schema::{Key, all};

mod answers;
mod nearest;
mod schema;
mod verl;

/// Refuses keys that do not exist, and names those that were probably meant.
pub(super) fn check(table: &DeTable<'_>) -> Result<(), String> {
    let keys = all();
    let known: BTreeMap<&str, &Key> = keys.iter().map(|key| (key.path.as_str(), key)).collect();
    let mut unknown = Vec::new();
    look(table, "", &known, &mut unknown);
    let has = |name: &str| table.contains_key(name);
    let answers: Vec<String> = unknown.iter().map(|key| answer(key, &keys, &has)).collect();
    if answers.is_empty() { Ok(()) } else { Err(answers.join("; ")) }
}

/// Adds the keys that do not exist.
fn look(table: &DeTable<'_>, path: &str, known: &BTreeMap<&str, &Key>, unknown: &mut Vec<String>) {
    for (name, value) in table {
        let name: &str = name.get_ref();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match (known.get(path.as_str()), value.get_ref()) {
            (Some(key), DeValue::Table(inner)) if key.is_table => {
                look(inner, &path, known, unknown);
            }
            // The whole path of a key that another program has says most. verl has a table `reward`.
            (_, DeValue::Table(inner)) if verl::is_foreign(&path) => {
                leaves(inner, &path, unknown);
            }
            (Some(_), _) => {}
            (None, _) => unknown.push(path),
        }
    }
}

fn leaves(table: &DeTable<'_>, path: &str, found: &mut Vec<String>) {
    for (name, value) in table {
        let path = format!("{path}.{name}");
        match value.get_ref() {
            DeValue::Table(inner) => leaves(inner, &path, found),
            _ => found.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        check(DeTable::parse(text).unwrap().get_ref()).unwrap_err()
    }

    #[test]
    fn unknown_keys_name_the_nearest_key() {
        let cases = [
            ("[ppo]\nrate = 1e-3", "it is `ppo.lr`"),
            ("[single_turn]\nahead = 1", "it is `single_turn.max_staleness`"),
            ("[rft.fit]\nbetter_by = 1", "it is `rft.fit.min_delta`"),
            ("[speech]\nmost = 3", "it is `sampling`"),
            ("[value]\ntotal_epochs = 3", "it is `value.fit.total_epochs`"),
            ("[ppo]\nlearning_rate = 1e-3", "here it is `ppo.lr`"),
            ("[ppo]\nnum_generations = 8", "here it is `ppo.rollout_n`"),
            ("[ppo]\nlam = 1", "here it is `ppo.actor_lambda` or `ppo.critic_lambda`"),
            ("[ppo]\ntotal_traning_steps = 8", "the nearest is `ppo.total_training_steps`"),
            ("max_turn = 8", "the nearest is `max_turns`"),
            ("[engine]\nnum_gpu = 8", "the nearest is `engine.num_gpus`"),
            ("[qqqq]\nzzzz = 8", "there is no key `qqqq`"),
            (
                "[actor_rollout_ref.actor.optim]\nlr = 1e-6",
                "here the key is `single_turn.lr` or `ppo.lr`",
            ),
            ("[actor_rollout_ref.actor]\nentropy_coeff = 0.1", "there is no entropy bonus"),
            (
                "[actor_rollout_ref.actor]\nulysses_sequence_parallel_size = 1",
                "without a counterpart here",
            ),
            ("[data]\nmax_response_length = 1", "here the key is `sampling.max_new_tokens`"),
            ("[ppo]\n[actor_rollout_ref.actor.optim]\nlr = 1e-6", "here the key is `ppo.lr`"),
            ("[speech]\n[ppo]\nkl_loss_coef = 0.1", "`sampling`"),
            ("[ppo]\nkl_loss_coef = 0.1", "there is no KL penalty"),
            ("[sampling]\nmost = 3", "it is `sampling.max_new_tokens`"),
            ("[ppo]\nentropy_coeff = 0.1", "there is no entropy bonus"),
            ("[ppo]\nbeta = 0.1", "there is no KL penalty"),
            ("[ppo]\nmax_completion_length = 9", "here it is `sampling.max_new_tokens`"),
            ("seed = 9", "the option is `--seed`"),
            ("[grpo]\nlr = 9", "`ppo.algorithm = \"grpo\"`"),
            ("[pretrained]\nmax_position_embeddings = 9", "it is `pretrained.max_model_len`"),
            ("[actor_rollout_ref.actor]\nppo_micro_batch_size = 9", "`engine.ppo_max_token_len`"),
            ("[trainer]\ndefault_local_dir = \"x\"", "here the option is `--out`"),
        ];
        for (text, told) in cases {
            let error = refused(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    /// What the answers promise exists.
    #[test]
    fn every_name_in_the_tables_is_a_key() {
        let keys = all();
        let exists = |path: &str| {
            keys.iter().any(|key| key.path == path || key.path.ends_with(&format!(".{path}")))
        };
        for (old, new) in answers::RENAMED {
            assert!(exists(new), "{old} is answered with {new}");
        }
        let tables = ["ppo", "sft", "engine", "sampling", "model", "pretrained"];
        let is_key =
            |name: &&str| name.split_once('.').is_some_and(|(table, _)| tables.contains(&table));
        for (paths, told) in verl::ELSEWHERE {
            assert!(paths.iter().all(|path| verl::is_foreign(path)), "{paths:?}");
            for key in told.split('`').skip(1).step_by(2).filter(is_key) {
                let key = key.split(" = ").next().unwrap();
                assert!(exists(key), "{paths:?} is answered with {key}");
            }
        }
        for key in keys.iter().flat_map(|key| &key.verl) {
            assert!(verl::is_foreign(key), "{key} lies in no table of verl");
        }
    }

    /// A guess by similarity would mislead: none of verl's keys is a misspelling.
    #[test]
    fn every_ppo_key_of_verl_is_answered() {
        let keys = all();
        let known = keys.iter().map(|key| (key.path.as_str(), key)).collect();
        let mut count = 0;
        for path in include_str!("../../tests/fixtures/verl-ppo-keys.txt").lines().map(str::trim) {
            if path.is_empty() || path.starts_with('#') {
                continue;
            }
            count += 1;
            let mut unknown = Vec::new();
            let text = format!("{path} = 1");
            look(DeTable::parse(&text).unwrap().get_ref(), "", &known, &mut unknown);
            assert!(unknown.is_empty() || unknown == [path], "{path}: {unknown:?}");
            if unknown.is_empty() {
                continue;
            }
            let told = answer(path, &keys, &|_| false);
            let head = format!("`{path}` is a key of verl");
            let rest = told.strip_prefix(&head).unwrap_or_else(|| panic!("{path}: {told}"));
            let is_absent = rest == " without a counterpart here: remove it";
            assert!(is_absent || rest.starts_with(": here "), "{path}: {told}");
            for key in keys.iter().filter(|key| key.verl.iter().any(|verl| verl == path)) {
                assert!(told.contains(&format!("`{}`", key.path)), "{path}: {told}");
            }
        }
        assert!(count > 100, "{count}");
    }

    #[test]
    fn verl_keys_with_another_unit_are_explained() {
        let cases = [
            ("[trainer]\ntotal_epochs = 3", "`ppo.total_training_steps` counts training steps"),
            ("[critic.optim]\nlr_warmup_steps = 3", "the critic's learning rate is constant"),
            ("[reward.reward_manager]\nname = \"dapo\"", "the key `reward` selects its form"),
            ("[actor_rollout_ref.rollout.val_kwargs]\ntemperature = 0", "evaluation samples with"),
            ("[actor_rollout_ref.rollout.val_kwargs]\nn = 2", "`eval.episodes_per_task`"),
            ("[actor_rollout_ref.ref.fsdp_config]\nseed = 1", "there is no reference policy"),
        ];
        for (text, told) in cases {
            let error = refused(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
