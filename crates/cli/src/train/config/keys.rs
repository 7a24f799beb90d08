//! The keys of a configuration, from the schema of its types: a key that does not exist is refused with the key that was
//! meant. Keys of verl, Hugging Face and TRL are answered with ours.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use toml::{Table, Value};

use super::Config;

/// A key that a configuration may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Key {
    /// With its tables, e.g. `ppo.lr`.
    pub(crate) path: String,
    /// What it is, from its type.
    pub(crate) description: String,
    /// Type, for people.
    pub(crate) kind: String,
    /// Default as TOML; `None` where the key is needed or its description says what holds without it.
    pub(crate) default: Option<String>,
    pub(crate) is_required: bool,
    pub(crate) is_table: bool,
    /// Names in verl's configuration, with their tables.
    pub(crate) verl: Vec<String>,
    /// Names in Hugging Face's or TRL's configuration.
    pub(crate) hf: Vec<String>,
}

/// Every key, tables before their keys.
pub(crate) fn all() -> Vec<Key> {
    let schema = schemars::schema_for!(Config).to_value();
    let mut keys = Vec::new();
    walk(&schema, &schema, "", &mut keys);
    keys
}

/// Follows references and takes the one alternative that is not null.
fn resolve<'a>(root: &'a Json, mut at: &'a Json) -> &'a Json {
    loop {
        if let Some(reference) = at.get("$ref").and_then(Json::as_str) {
            let Some(found) = reference.strip_prefix('#').and_then(|path| root.pointer(path))
            else {
                return at;
            };
            at = found;
        } else if let Some(some) = at.get("anyOf").and_then(Json::as_array) {
            let mut alternatives = some.iter().filter(|one| one["type"] != "null");
            match (alternatives.next(), alternatives.next()) {
                (Some(only), None) => at = only,
                _ => return at,
            }
        } else {
            return at;
        }
    }
}

fn walk(root: &Json, at: &Json, path: &str, keys: &mut Vec<Key>) {
    let at = resolve(root, at);
    let Some(properties) = at.get("properties").and_then(Json::as_object) else { return };
    let required =
        |name: &str| at["required"].as_array().is_some_and(|all| all.iter().any(|key| key == name));
    for (name, property) in properties {
        let of = resolve(root, property);
        let is_table = of.get("properties").is_some();
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let names = |key: &str| -> Vec<String> {
            let all = property.get(key).and_then(Json::as_array).into_iter().flatten();
            all.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
        };
        let described = property.get("description").or_else(|| of.get("description"));
        let description = described.and_then(Json::as_str).unwrap_or_default();
        keys.push(Key {
            path: path.clone(),
            description: description.split_whitespace().collect::<Vec<_>>().join(" "),
            kind: kind(root, property),
            default: property.get("default").filter(|_| !is_table).and_then(as_toml),
            is_required: required(name),
            is_table,
            verl: names("x-verl"),
            hf: names("x-hf"),
        });
        walk(root, property, &path, keys);
    }
}

/// A type for people: `integer`, `list of string`, or the values of an enumeration.
fn kind(root: &Json, at: &Json) -> String {
    let at = resolve(root, at);
    let values: Vec<&str> = match (at.get("enum"), at.get("oneOf")) {
        (Some(values), _) => {
            values.as_array().into_iter().flatten().filter_map(Json::as_str).collect()
        }
        (None, Some(some)) => {
            let some = some.as_array().into_iter().flatten();
            some.flat_map(|one| {
                let many = one.get("enum").and_then(Json::as_array).into_iter().flatten();
                many.chain(one.get("const"))
            })
            .filter_map(Json::as_str)
            .collect()
        }
        _ => Vec::new(),
    };
    if !values.is_empty() {
        return values.iter().map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(", ");
    }
    let name = match &at["type"] {
        Json::String(name) => name.as_str(),
        Json::Array(names) => {
            names.iter().filter_map(Json::as_str).find(|name| *name != "null").unwrap_or("any")
        }
        _ => "any",
    };
    match name {
        "array" => match (at.get("items"), at.get("prefixItems").and_then(Json::as_array)) {
            (_, Some(items)) => format!("list of {} {}s", items.len(), kind(root, &items[0])),
            (Some(items), None) => format!("list of {}", kind(root, items)),
            _ => "list".to_owned(),
        },
        "object" => "table".to_owned(),
        other => other.to_owned(),
    }
}

fn as_toml(json: &Json) -> Option<String> {
    match json {
        Json::Null | Json::Object(_) => None,
        Json::Array(all) => {
            let all: Option<Vec<String>> = all.iter().map(as_toml).collect();
            Some(format!("[{}]", all?.join(", ")))
        }
        other => Some(other.to_string()),
    }
}

/// Refuses keys that do not exist, and names those that were probably meant.
pub(crate) fn check(table: &Table) -> Result<(), String> {
    let keys = all();
    let known: BTreeMap<&str, &Key> = keys.iter().map(|key| (key.path.as_str(), key)).collect();
    let mut unknown = Vec::new();
    look(table, "", &known, &mut unknown);
    let has = |name: &str| table.contains_key(name);
    let answers: Vec<String> = unknown.iter().map(|key| answer(key, &keys, &has)).collect();
    if answers.is_empty() { Ok(()) } else { Err(answers.join("; ")) }
}

/// Adds the keys that do not exist.
fn look(table: &Table, path: &str, known: &BTreeMap<&str, &Key>, unknown: &mut Vec<String>) {
    for (name, value) in table {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (known.get(path.as_str()), value) {
            (Some(key), Value::Table(inner)) if key.is_table => {
                look(inner, &path, known, unknown);
            }
            (Some(_), _) => {}
            // The whole path of a key that another program has says most.
            (None, Value::Table(inner)) if is_foreign(&path) => {
                leaves(inner, &path, unknown);
            }
            (None, _) => unknown.push(path),
        }
    }
}

fn leaves(table: &Table, path: &str, found: &mut Vec<String>) {
    for (name, value) in table {
        let path = format!("{path}.{name}");
        match value {
            Value::Table(inner) => leaves(inner, &path, found),
            _ => found.push(path),
        }
    }
}

/// Tables of verl's configuration.
const FOREIGN: [&str; 10] = [
    "actor_rollout_ref",
    "data",
    "critic",
    "algorithm",
    "trainer",
    "reward_model",
    "reward_manager",
    "custom_reward_function",
    "global_profiler",
    "ray_kwargs",
];

fn is_foreign(path: &str) -> bool {
    FOREIGN.contains(&path.split('.').next().unwrap_or(path))
}

/// verl's keys whose counterpart here is no key of the configuration.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "data.max_prompt_length",
        "the key is `model.max_position_embeddings` or `pretrained.max_model_len`, per episode",
    ),
    ("data.seed", "the option is `--seed`"),
    ("trainer.default_local_dir", "the option is `--out`"),
    ("trainer.experiment_name", "the option is `--out`"),
    ("trainer.resume_mode", "a run resumes when the same command is run again"),
    ("trainer.save_freq", "a checkpoint is saved after every training step"),
    ("trainer.logger", "metrics are written for TensorBoard, to `OUT/tensorboard`"),
    ("trainer.val_before_train", "stage `eval` evaluates the policy of every stage"),
    ("trainer.test_freq", "stage `eval` evaluates the policy of every stage"),
    ("trainer.val_only", "the command is `warpwright train eval`"),
    (
        "actor_rollout_ref.rollout.prompt_length",
        "the key is `model.max_position_embeddings` or `pretrained.max_model_len`, per episode",
    ),
    (
        "actor_rollout_ref.rollout.enforce_eager",
        "the key is `engine.cuda_graphs`, with the opposite value",
    ),
    (
        "actor_rollout_ref.actor.entropy_coeff",
        "there is no entropy bonus: the engine has no gradient of the entropy",
    ),
    (
        "actor_rollout_ref.actor.use_kl_loss",
        "there is no KL penalty; `ppo.lr_kl_target_per_episode` limits the KL divergence of an update",
    ),
    (
        "actor_rollout_ref.actor.kl_loss_coef",
        "there is no KL penalty; `ppo.lr_kl_target_per_episode` limits the KL divergence of an update",
    ),
    (
        "algorithm.use_kl_in_reward",
        "there is no KL penalty; `ppo.lr_kl_target_per_episode` limits the KL divergence of an update",
    ),
    (
        "algorithm.kl_ctrl",
        "there is no KL penalty; `ppo.lr_kl_target_per_episode` limits the KL divergence of an update",
    ),
    (
        "actor_rollout_ref.actor.loss_agg_mode",
        "losses are means over all actions of the batch (verl's `token-mean`)",
    ),
    (
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio",
        "the key is `ppo.lr_warmup_steps`, in steps",
    ),
    ("critic.optim.lr_warmup_steps_ratio", "the key is `ppo.lr_warmup_steps`, in steps"),
    (
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "the key is `engine.ppo_max_token_len`, in tokens",
    ),
    (
        "actor_rollout_ref.actor.ppo_micro_batch_size",
        "the key is `engine.ppo_max_token_len`, in tokens",
    ),
    ("critic.ppo_micro_batch_size_per_gpu", "the key is `engine.ppo_max_token_len`, in tokens"),
    (
        "algorithm.rollout_correction.rollout_is",
        "importance sampling is per token; `ppo.rollout_is_threshold = 0` disables it",
    ),
];

/// Names of TRL and Hugging Face, and common guesses, whose counterpart is no key of the same table.
const ELSEWHERE_BY_NAME: &[(&str, &str)] = &[
    (
        "beta",
        "there is no KL penalty; `ppo.lr_kl_target_per_episode` limits the KL divergence of an update",
    ),
    ("epsilon", "the keys are `ppo.clip_ratio_low` and `ppo.clip_ratio_high`"),
    ("cliprange", "the keys are `ppo.clip_ratio_low` and `ppo.clip_ratio_high`"),
    ("clip_ratio", "the keys are `ppo.clip_ratio_low` and `ppo.clip_ratio_high`"),
    ("loss_type", "the key is `ppo.algorithm`; losses are means over all actions of the batch"),
    ("warmup_ratio", "the key is `lr_warmup_steps`, in steps"),
    ("lr_warmup_steps_ratio", "the key is `lr_warmup_steps`, in steps"),
    ("seed", "the option is `--seed`"),
    ("output_dir", "the option is `--out`"),
    ("max_seq_length", "the key is `model.max_position_embeddings` or `pretrained.max_model_len`"),
    ("grpo", "the key is `ppo.algorithm = \"grpo\"`"),
    ("rloo", "the key is `ppo.algorithm = \"rloo\"`"),
    ("arms", "experiments are run by `warpwright experiment`"),
    ("base", "experiments are run by `warpwright experiment`"),
    ("seeds", "experiments are run by `warpwright experiment`"),
    ("shared", "experiments are run by `warpwright experiment`"),
];

/// Names that keys had in earlier development versions.
const RENAMED: &[(&str, &str)] = &[
    ("turns", "max_turns"),
    ("verdicts", "verdict_cache_samples"),
    ("speech", "sampling"),
    ("model.vocabulary", "model.vocab_size"),
    ("model.hidden", "model.hidden_size"),
    ("model.feed_forward", "model.intermediate_size"),
    ("model.layers", "model.num_hidden_layers"),
    ("model.heads", "model.num_attention_heads"),
    ("model.groups", "model.num_key_value_heads"),
    ("model.positions", "model.max_position_embeddings"),
    ("model.split", "model.pretokenizer"),
    ("pretrained.folder", "pretrained.path"),
    ("pretrained.positions", "pretrained.max_model_len"),
    ("pretrained.max_position_embeddings", "pretrained.max_model_len"),
    ("pretrained.lora", "pretrained.lora_rank"),
    ("pretrained.lora_scale", "pretrained.lora_alpha"),
    ("sampling.most", "sampling.max_new_tokens"),
    ("sampling.result_tokens", "sampling.max_tool_result_tokens"),
    ("engine.compute", "engine.dtype"),
    ("engine.moments", "engine.optimizer_state_dtype"),
    ("engine.pass_tokens", "engine.ppo_max_token_len"),
    ("engine.recompute", "engine.gradient_checkpointing"),
    ("engine.slots", "engine.max_num_seqs"),
    ("engine.gpus", "engine.num_gpus"),
    ("engine.graphs", "engine.cuda_graphs"),
    ("engine.fused", "engine.fused_kernels"),
    ("engine.threads", "engine.num_threads"),
    ("engine.sampler_rounding", "engine.sampler_dtype"),
    ("engine.sampler_behind", "engine.sampler_lag"),
    ("tasks.sample", "tasks.max_train_tasks"),
    ("tasks.held_out_sample", "tasks.max_held_out_tasks"),
    ("tasks.most_operators", "tasks.max_operators"),
    ("demos.episodes", "demos.episodes_per_task"),
    ("collect.episodes", "collect.episodes_per_task"),
    ("collect.tasks", "collect.max_tasks"),
    ("eval.episodes", "eval.episodes_per_task"),
    ("eval.first", "eval.single_turn"),
    ("eval.rivals", "eval.baseline_policies"),
    ("rft.above", "rft.reward_threshold"),
    ("pretrain.versions", "pretrain.kernels_per_task"),
    ("pretrain.share", "pretrain.max_kernel_share"),
    ("pretrain.source_mib", "pretrain.max_source_mib"),
    ("pretrain.sample", "pretrain.max_tasks"),
    ("rule", "algorithm"),
    ("updates", "total_training_steps"),
    ("tasks", "train_batch_size"),
    ("episodes", "rollout_n"),
    ("parts", "ppo_mini_batch_size"),
    ("rate", "lr"),
    ("anneals", "lr_scheduler_type"),
    ("decay", "weight_decay"),
    ("critic_first", "critic_warmup_steps"),
    ("critic_rate", "critic_lr"),
    ("critic_steps", "critic_steps_per_step"),
    ("own_critic", "separate_critic"),
    ("trust", "lr_kl_target_per_episode"),
    ("ahead", "max_staleness"),
    ("skips_flat", "drop_zero_variance_groups"),
    ("alike", "zero_variance_tolerance"),
    ("imitation", "positive_nll_weight"),
    ("held_out", "validation_fraction"),
    ("better_by", "min_delta"),
    ("batch", "train_batch_size"),
    ("epochs", "total_epochs"),
    ("stop_at", "halt_on"),
    ("back_at", "rollback_on"),
    ("flat_share", "zero_variance_sample_weight"),
    ("misnamed", "undefined_name"),
    ("mended", "repair_rate"),
    ("edited", "edit_rate"),
    ("checked", "judge_rate"),
    ("improved", "improve_rate"),
    ("wrong", "off_by_one"),
    ("errors", "max_errors"),
];

/// What to write instead of an unknown key; `has` says whether the configuration has a table.
fn answer(unknown: &str, keys: &[Key], has: &dyn Fn(&str) -> bool) -> String {
    let (table, name) = unknown.rsplit_once('.').unwrap_or(("", unknown));
    let beside = |name: &str| {
        let path = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        keys.iter().find(|key| key.path == path)
    };
    let ours = |mut found: Vec<&Key>| {
        // Keys of tables that the configuration has, if there are any.
        let in_use = |key: &Key| has(key.path.split('.').next().unwrap_or(&key.path));
        if found.iter().any(|key| in_use(key)) {
            found.retain(|key| in_use(key));
        }
        let names: Vec<String> = found.iter().map(|key| format!("`{}`", key.path)).collect();
        names.join(" or ")
    };
    let known = format!("`{unknown}` is a key of verl");
    let is_under = |path: &str| unknown == path || unknown.starts_with(&format!("{path}."));
    if let Some((_, told)) = ELSEWHERE.iter().find(|(path, _)| is_under(path)) {
        return format!("{known}: here {told}");
    }
    let of_verl: Vec<&Key> =
        keys.iter().filter(|key| key.verl.iter().any(|verl| verl == unknown)).collect();
    if !of_verl.is_empty() {
        return format!("{known}: here the key is {}", ours(of_verl));
    }
    if is_foreign(unknown) {
        return format!("{known} without a counterpart here: remove it");
    }
    let renamed =
        RENAMED.iter().find(|(old, _)| *old == unknown).map(|(_, new)| *new).or_else(|| {
            let found = RENAMED.iter().find(|(old, _)| *old == name && !table.is_empty());
            found.map(|(_, new)| *new).filter(|new| beside(new).is_some())
        });
    if let Some(new) = renamed {
        let new = beside(new).map_or(new, |key| key.path.as_str());
        return format!("there is no key `{unknown}`: it is `{new}`");
    }
    // As Hugging Face, TRL and verl call keys of this table, without their own tables.
    let is_called = |key: &&Key| {
        let verl = key.verl.iter().any(|verl| verl.rsplit('.').next() == Some(name));
        verl || key.hf.iter().any(|hf| hf == name)
    };
    let in_table = |key: &&Key| key.path.rsplit_once('.').map_or("", |(of, _)| of) == table;
    let called: Vec<&Key> = keys.iter().filter(in_table).filter(is_called).collect();
    if !called.is_empty() {
        return format!("there is no key `{unknown}`: here it is {}", ours(called));
    }
    let told = ELSEWHERE_BY_NAME.iter().find(|(other, _)| *other == name).map(|(_, told)| *told);
    let told = told.or_else(|| {
        let is_last = |path: &str| path.rsplit('.').next() == Some(name);
        ELSEWHERE.iter().find(|(path, _)| is_last(path)).map(|(_, told)| *told)
    });
    if let Some(told) = told {
        return format!("there is no key `{unknown}`: {told}");
    }
    let called: Vec<&Key> = keys.iter().filter(is_called).collect();
    if !called.is_empty() {
        return format!("there is no key `{unknown}`: here it is {}", ours(called));
    }
    let likeness = |key: &Key| {
        let (of, own) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
        let near = strsim::jaro_winkler(own, name);
        // A key of the same table is meant more often.
        if of == table { near } else { near - 0.1 }
    };
    let nearest = keys.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|key| likeness(key) > 0.82) {
        Some(key) => format!("there is no key `{unknown}`; the nearest is `{}`", key.path),
        None => format!("there is no key `{unknown}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        check(&toml::from_str(text).unwrap()).unwrap_err()
    }

    #[test]
    fn unknown_keys_name_the_nearest_key() {
        let cases = [
            ("[ppo]\nrate = 1e-3", "it is `ppo.lr`"),
            ("[single_turn]\nahead = 1", "it is `single_turn.max_staleness`"),
            ("[rft.fit]\nbetter_by = 1", "it is `rft.fit.min_delta`"),
            ("[speech]\nmost = 3", "it is `sampling`"),
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
        for (old, new) in RENAMED {
            assert!(exists(new), "{old} is answered with {new}");
        }
        for (verl, told) in ELSEWHERE {
            assert!(is_foreign(verl), "{verl}");
            let named = told.split('`').skip(1).step_by(2);
            for key in named.filter(|key| key.starts_with("ppo.") || key.starts_with("engine.")) {
                let key = key.split(" = ").next().unwrap();
                assert!(exists(key), "{verl} is answered with {key}");
            }
        }
        for key in keys.iter().flat_map(|key| &key.verl) {
            assert!(is_foreign(key), "{key} lies in no table of verl");
        }
    }
}
