//! The answer to an unknown key: its name here, the option or fact that replaces it, or the nearest key.

use super::nearest::nearest;
use super::{Key, verl};

/// Names of TRL and Hugging Face, and common guesses, whose counterpart is no key of the same table.
const ELSEWHERE_BY_NAME: &[(&str, &str)] = &[
    ("beta", verl::NO_KL_PENALTY),
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
];

/// Names that keys had in earlier development versions.
pub(super) const RENAMED: &[(&str, &str)] = &[
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
pub(super) fn answer(unknown: &str, keys: &[Key], has: &dyn Fn(&str) -> bool) -> String {
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
    let of_verl: Vec<&Key> =
        keys.iter().filter(|key| key.verl.iter().any(|verl| verl == unknown)).collect();
    if !of_verl.is_empty() {
        return format!("{known}: here the key is {}", ours(of_verl));
    }
    if let Some(told) = verl::elsewhere(unknown) {
        return format!("{known}: here {told}");
    }
    // A bare name may belong to one of our tables: `algorithm` is `ppo.algorithm`.
    if verl::is_foreign(unknown) && !table.is_empty() {
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
    // The key of a table inside this table, e.g. `value.fit.lr` for `value.lr`.
    let (start, end) = (format!("{table}."), format!(".{name}"));
    let inner = |key: &&Key| key.path.starts_with(&start) && key.path.ends_with(&end);
    if let Some(key) = keys.iter().find(inner) {
        return format!("there is no key `{unknown}`: it is `{}`", key.path);
    }
    let told = ELSEWHERE_BY_NAME.iter().find(|(other, _)| *other == name).map(|(_, told)| *told);
    if let Some(told) = told {
        return format!("there is no key `{unknown}`: {told}");
    }
    let called: Vec<&Key> = keys.iter().filter(is_called).collect();
    if !called.is_empty() {
        return format!("there is no key `{unknown}`: here it is {}", ours(called));
    }
    if let Some(told) = verl::elsewhere_by_name(name) {
        return format!("there is no key `{unknown}`: {told}");
    }
    match nearest(table, name, keys) {
        Some(key) => format!("there is no key `{unknown}`; the nearest is `{}`", key.path),
        None => format!("there is no key `{unknown}`"),
    }
}
