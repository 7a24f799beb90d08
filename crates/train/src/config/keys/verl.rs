//! Keys of verl whose counterpart here is no key with the same meaning. Keys that have one name it in the attribute
//! `x-verl` of their type.

/// Tables of verl's configuration.
const FOREIGN: [&str; 15] = [
    "actor_rollout_ref",
    "data",
    "critic",
    "algorithm",
    "trainer",
    "reward",
    "reward_model",
    "reward_manager",
    "custom_reward_function",
    "sandbox_fusion",
    "distillation",
    "skip",
    "transfer_queue",
    "global_profiler",
    "ray_kwargs",
];

/// Whether a key lies in a table of verl's configuration.
pub(super) fn is_foreign(path: &str) -> bool {
    FOREIGN.contains(&path.split('.').next().unwrap_or(path))
}

pub(super) const NO_KL_PENALTY: &str =
    "there is no KL penalty; `ppo.lr_kl_target_per_episode` limits the KL divergence of an update";

/// Keys and tables of verl, and the sentence that answers them. The first that matches counts.
pub(super) const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["data.max_prompt_length", "actor_rollout_ref.rollout.prompt_length"],
        "the key is `model.max_position_embeddings` or `pretrained.max_model_len`, per episode",
    ),
    (
        &[
            "data.seed",
            "actor_rollout_ref.rollout.seed",
            "actor_rollout_ref.actor.data_loader_seed",
            "critic.data_loader_seed",
            "actor_rollout_ref.actor.fsdp_config.seed",
            "critic.fsdp.seed",
            "critic.model.fsdp_config.seed",
        ],
        "the option is `--seed`",
    ),
    (&["data.shuffle"], "each training step samples its tasks, with the seed `--seed`"),
    (
        &[
            "data.tokenizer",
            "actor_rollout_ref.model.tokenizer_path",
            "critic.model.tokenizer_path",
        ],
        "the tokenizer is `tokenizer.json` in the folder `pretrained.path`",
    ),
    (&["trainer.default_local_dir", "trainer.experiment_name"], "the option is `--out`"),
    (&["trainer.resume_mode"], "a run resumes when the same command is run again"),
    (
        &["trainer.resume_from_path"],
        "the option is `--out`: a run resumes when the same command is run again",
    ),
    (&["trainer.save_freq"], "a checkpoint is saved after every training step"),
    (
        &["trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep"],
        "the last checkpoint and those for `ppo.rollback_on` are kept",
    ),
    (&["trainer.logger"], "metrics are written for TensorBoard, to `OUT/tensorboard`"),
    (&["trainer.rollout_data_dir"], "episodes are recorded in `OUT/STAGE/record`"),
    (&["trainer.validation_data_dir"], "stage `eval` records its episodes in `OUT/eval`"),
    (&["trainer.log_val_generations"], "`OUT/report.html` shows kernels of the training episodes"),
    (
        &["trainer.val_before_train", "trainer.test_freq"],
        "stage `eval` evaluates the policy of every stage",
    ),
    (&["trainer.val_only"], "the command is `warpwright train eval`"),
    (&["trainer.device"], "the option is `--device`"),
    (
        &["trainer.nnodes", "actor_rollout_ref.rollout.nnodes"],
        "a run trains on one host; the option `--device` lists its devices",
    ),
    (
        &["trainer.total_epochs"],
        "`ppo.total_training_steps` counts training steps, not passes over the tasks; \
         `sft.total_epochs` counts passes over demonstrations",
    ),
    (
        &["trainer.v1.sampler.max_off_policy_threshold"],
        "the key is `ppo.max_staleness`, in training steps",
    ),
    (&["actor_rollout_ref.rollout.n_gpus_per_node"], "the key is `engine.num_gpus`"),
    (
        &["actor_rollout_ref.rollout.enforce_eager"],
        "the key is `engine.cuda_graphs`, with the opposite value",
    ),
    (
        &["actor_rollout_ref.rollout.cudagraph_capture_sizes"],
        "the key is `engine.cuda_graphs`, on or off",
    ),
    (&["actor_rollout_ref.rollout.quantization"], "the key is `engine.sampler_dtype`"),
    (
        &["actor_rollout_ref.rollout.top_k"],
        "there is no top-k; `sampling.top_p` is nucleus sampling",
    ),
    (
        &["actor_rollout_ref.rollout.do_sample"],
        "`sampling.temperature = 0` takes the most likely token",
    ),
    (
        &["actor_rollout_ref.rollout.val_kwargs"],
        "evaluation samples with the keys of `[sampling]`, like training",
    ),
    (
        &["actor_rollout_ref.rollout.calculate_log_probs"],
        "the sampler's log-probabilities are always recorded",
    ),
    (
        &[
            "actor_rollout_ref.rollout.multi_turn.enable",
            "actor_rollout_ref.rollout.multi_turn.max_user_turns",
        ],
        "`max_turns` limits the policy's messages per episode; stage `single-turn` has one",
    ),
    (
        &[
            "actor_rollout_ref.rollout.full_determinism",
            "actor_rollout_ref.actor.fsdp_config.full_determinism",
            "critic.fsdp.full_determinism",
            "critic.model.fsdp_config.full_determinism",
        ],
        "`engine.num_threads = 1` makes a run on the cpu device reproducible",
    ),
    (
        &["actor_rollout_ref.actor.calculate_entropy"],
        "the metric `actor/entropy` is always written",
    ),
    (
        &["actor_rollout_ref.actor.entropy_coeff"],
        "there is no entropy bonus: the engine has no gradient of the entropy",
    ),
    (
        &[
            "actor_rollout_ref.actor.use_kl_loss",
            "actor_rollout_ref.actor.kl_loss_coef",
            "actor_rollout_ref.actor.kl_loss_type",
            "algorithm.use_kl_in_reward",
            "algorithm.kl_ctrl",
            "algorithm.kl_penalty",
        ],
        NO_KL_PENALTY,
    ),
    (
        &["actor_rollout_ref.actor.loss_agg_mode"],
        "losses are means over all actions of the batch (verl's `token-mean`)",
    ),
    (&["actor_rollout_ref.actor.tis_imp_ratio_cap"], "the key is `ppo.rollout_is_threshold`"),
    (
        &["actor_rollout_ref.actor.shuffle", "critic.shuffle"],
        "episodes are dealt to minibatches in turn; the key is `ppo.ppo_mini_batch_size`",
    ),
    (
        &["actor_rollout_ref.actor.optim.lr_warmup_steps_ratio"],
        "the key is `ppo.lr_warmup_steps`, in steps",
    ),
    (
        &["actor_rollout_ref.actor.optim.min_lr_ratio"],
        "`ppo.lr_scheduler_type` has no minimum: `linear` and `cosine` reach 0",
    ),
    (
        &["actor_rollout_ref.actor.optim.num_cycles"],
        "`ppo.lr_scheduler_type = \"cosine\"` has half a period",
    ),
    (
        &["actor_rollout_ref.actor.optim.optimizer", "critic.optim.optimizer"],
        "the optimizer is AdamW; the keys are `ppo.adam_betas` and `ppo.weight_decay`",
    ),
    (
        &[
            "critic.optim.lr_warmup_steps",
            "critic.optim.lr_warmup_steps_ratio",
            "critic.optim.lr_scheduler_type",
            "critic.optim.warmup_style",
            "critic.optim.min_lr_ratio",
            "critic.optim.num_cycles",
        ],
        "the critic's learning rate is constant; the key is `ppo.critic_lr`",
    ),
    (
        &["critic.enable"],
        "`ppo.algorithm = \"ppo\"` trains a critic; `ppo.separate_critic` gives it weights of its own",
    ),
    (
        &[
            "actor_rollout_ref.actor.ppo_micro_batch_size",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
            "actor_rollout_ref.actor.use_dynamic_bsz",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz",
            "critic.ppo_micro_batch_size",
            "critic.ppo_micro_batch_size_per_gpu",
            "critic.use_dynamic_bsz",
            "critic.forward_micro_batch_size",
            "critic.forward_micro_batch_size_per_gpu",
        ],
        "the key is `engine.ppo_max_token_len`, in tokens",
    ),
    (
        &[
            "actor_rollout_ref.actor.fsdp_config.model_dtype",
            "critic.fsdp.model_dtype",
            "critic.model.fsdp_config.model_dtype",
        ],
        "weights are float32; `engine.dtype` is the type of matrix products",
    ),
    (&["critic.fsdp.dtype", "critic.model.fsdp_config.dtype"], "the key is `engine.dtype`"),
    (&["critic.model.use_fused_kernels"], "the key is `engine.fused_kernels`"),
    (&["critic.model.hf_config_path"], "the key is `model.config`"),
    (
        &["actor_rollout_ref.model.lora.rank", "critic.model.lora.rank"],
        "the key is `pretrained.lora_rank`",
    ),
    (
        &["actor_rollout_ref.model.lora.alpha", "critic.model.lora.alpha"],
        "the key is `pretrained.lora_alpha`",
    ),
    (
        &[
            "actor_rollout_ref.model.lora_adapter_path",
            "critic.model.lora_adapter_path",
            "actor_rollout_ref.model.lora.adapter_path",
            "critic.model.lora.adapter_path",
        ],
        "adapters of another run cannot be trained further: the base model is `pretrained.path`, `pretrained.lora_rank` trains new ones",
    ),
    (&["actor_rollout_ref.ref"], "there is no reference policy, because there is no KL penalty"),
    (
        &["algorithm.norm_adv_by_std_in_grpo"],
        "`ppo.algorithm = \"grpo\"` always divides by the standard deviation",
    ),
    (
        &["algorithm.rollout_correction.rollout_is"],
        "importance sampling is per token; `ppo.rollout_is_threshold = 0` disables it",
    ),
    (
        &["algorithm.filter_groups.metric"],
        "groups are compared by reward; the key is `ppo.zero_variance_tolerance`",
    ),
    (
        &["reward", "reward_model", "reward_manager", "custom_reward_function"],
        "the judge computes the reward; the key `reward` selects its form",
    ),
];

/// The answer to a key of verl, or to a key of a table of verl.
pub(super) fn elsewhere(unknown: &str) -> Option<&'static str> {
    let is_under = |path: &str| {
        unknown.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let found = ELSEWHERE.iter().find(|(paths, _)| paths.iter().any(|path| is_under(path)));
    found.map(|(_, told)| *told)
}

/// The answer to the last part of a key of verl, in whatever table it is; `None` if keys with different
/// answers end in it.
pub(super) fn elsewhere_by_name(name: &str) -> Option<&'static str> {
    let is_last = |path: &&str| path.rsplit('.').next() == Some(name);
    let mut found = ELSEWHERE.iter().filter(|(paths, _)| paths.iter().any(is_last));
    let (_, told) = found.next()?;
    found.next().is_none().then_some(*told)
}
