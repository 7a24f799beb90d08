//! `warpwright train` and `experiment`: training runs, and invalid configurations.

use serde_json::{Value, json};

use crate::program::{Program, TASK};

/// A configuration whose task is `task.py`.
const CONFIG: &str = "\
[tasks]
train = [\"task.py\"]

[model]
vocab_size = 512
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 1
max_position_embeddings = 256

[demos]
episodes_per_task = 1

[sft]
lr = 1e-3
total_epochs = 1
";

/// The error for an invalid configuration.
fn refused(program: &Program, arguments: &[&str]) -> String {
    let mut all = vec!["train"];
    all.extend(arguments);
    all.extend(["--device", "cpu"]);
    let ran = program.run(&all);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    ran.stderr
}

#[test]
fn invalid_configurations_are_refused_before_training() {
    let program = Program::new();
    program.write("task.py", TASK);
    let other = |what: &str, by: &str| {
        assert!(CONFIG.contains(what));
        program.write("a.toml", &CONFIG.replace(what, by));
        refused(&program, &["run", "a.toml"])
    };
    let told = other("total_epochs = 1", "total_epochs = 1\ntotal_epoch = 2");
    let reference = "docs/reference/configuration.md";
    assert!(
        told.contains("the nearest is `sft.total_epochs`") && told.contains(reference),
        "{told}"
    );
    let told = other("total_epochs = 1", "total_epochs = 1\nrate = 2");
    assert!(told.contains("there is no key `sft.rate`: it is `sft.lr`"), "{told}");
    let told = other("[sft]", "[actor_rollout_ref.actor]\nclip_ratio_c = 3.0\n\n[sft]");
    assert!(told.contains("a key of verl: here the key is `single_turn.clip_ratio_c`"), "{told}");
    program.write("a.toml", CONFIG);
    let told = refused(&program, &["run", "a.toml", "--set", "ppo.lrs=3"]);
    assert!(told.contains("the nearest is `ppo.lr`"), "{told}");
    let told = refused(&program, &["run", "a.toml", "--set", "sft.lr"]);
    assert!(told.contains("write KEY=VALUE"), "{told}");
    let told = other("train = [\"task.py\"]", "train = [\"task.py\"]\nheld_out = [\"task.py\"]");
    assert!(told.contains("it is also the training task"), "{told}");
    let told = other("train = [\"task.py\"]", "train = []");
    assert!(told.contains("tasks.train is empty"), "{told}");
    let told = other("num_attention_heads = 2", "num_attention_heads = 3");
    assert!(told.contains("must be a multiple of num_attention_heads"), "{told}");
    let told = other("[sft]", "[eval]\nepisodes_per_task = 1\n\n[sft]");
    assert!(told.contains("[eval] needs tasks.held_out"), "{told}");
    let playing = "total_training_steps = 1\ntrain_batch_size = 1\nrollout_n = 1\nlr = 1e-3";
    for special in [
        "algorithm = \"rloo\"\ndrop_zero_variance_groups = true",
        "algorithm = \"grpo\"\npositive_nll_weight = 0.1",
    ] {
        let told = other("[sft]", &format!("[ppo]\n{playing}\n{special}\n\n[sft]"));
        assert!(told.contains("need algorithm = \"ppo\""), "{told}");
    }
    let told =
        other("[sft]", &format!("[ppo]\n{playing}\nzero_variance_tolerance = -0.1\n\n[sft]"));
    assert!(told.contains("ppo.zero_variance_tolerance must be finite and at least 0"), "{told}");
    let told = other("[demos]", "[pretrained]\npath = \"x\"\n\n[demos]");
    assert!(told.contains("either [model], from scratch, or [pretrained]"), "{told}");
    let told = other("[demos]", "[engine]\nnum_gpus = 2\n\n[demos]");
    assert!(
        told.contains("2 devices: the run has 1") && told.contains("engine.num_gpus"),
        "{told}"
    );
    let pretrain = |table: &str| other("[demos]", &format!("[pretrain]\n{table}\n[demos]"));
    let fit = "fit = { lr = 1e-3, total_epochs = 1 }\n";
    let told = pretrain(fit);
    assert!(told.contains("[pretrain] needs tasks or sources"), "{told}");
    let told = pretrain(&format!("sources = [\"a\"]\nmax_kernel_share = 1.0\n{fit}"));
    assert!(told.contains("at least 0 and below 1"), "{told}");
    let told = pretrain(&format!("tasks = [\"task.py\"]\nmax_kernel_share = 0.1\n{fit}"));
    assert!(told.contains("pretrain.max_kernel_share needs pretrain.sources"), "{told}");
    let told = pretrain(&format!("tasks = [\"task.py\"]\nflaws = {{ off_by_one = 2.0 }}\n{fit}"));
    assert!(told.contains("pretrain.flaws.off_by_one must lie between 0 and 1"), "{told}");

    program.write("other.py", &format!("{TASK}\n# Another.\n"));
    let tasks = "train = [\"task.py\"]\nheld_out = [\"other.py\"]\n\n";
    let written = format!("{tasks}[pretrain]\ntasks = [\"other.py\"]\n{fit}");
    let told = other("train = [\"task.py\"]\n", &written);
    assert!(told.contains("it is also the training task"), "{told}");

    program.write("a.toml", CONFIG);
    let told = refused(&program, &["ppo", "a.toml"]);
    assert!(told.contains("failed to run stage ppo") && told.contains("[ppo]"), "{told}");
    let told = refused(&program, &["run", "nothing.toml"]);
    assert!(told.contains("nothing.toml"), "{told}");
}

/// Stage `pretrain` trains on unjudged kernels and on source code, and reports tasks without kernels.
#[test]
fn pretraining_uses_unjudged_kernels_and_source_code() {
    let program = Program::new();
    program.write("task.py", TASK);
    let compose = |more: &str| {
        let words = format!("task compose --runtime-range host --shape 64x64 {more}");
        program.run(&words.split(' ').collect::<Vec<_>>())
    };
    let only = "torch.nn.functional.relu,torch.add,torch.cummax,torch.mul";
    let all = format!("--count 12 --operators 1-2 --only {only} --out more.jsonl --json");
    let ran = compose(&all);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let splits = ran.object()["splits"].clone();
    let train = splits["train"].as_u64().unwrap();
    assert!((6..=12).contains(&train), "{splits}");
    let more = fs_err::read_to_string(program.path("more.jsonl")).unwrap();
    assert_eq!(more.lines().count(), 12);
    let ran = compose(&format!("--count 9999 --operators 1-2 --only {only} --out x.jsonl"));
    assert!(ran.code == Some(0) && ran.stderr.contains("admit no other task"), "{}", ran.show());
    let few = fs_err::read_to_string(program.path("x.jsonl")).unwrap();
    assert!((12..100).contains(&few.lines().count()), "{few}");
    let ran = compose("--count 9 --operators 3 --only torch.abs --out none.jsonl");
    assert!(ran.code == Some(2) && !program.path("none.jsonl").exists(), "{}", ran.show());

    program.write("code/a/one.py", &"def one(x):\n    return x + 1\n".repeat(40));
    program.write("code/two.cuh", &"__device__ float two(float x) { return x * 2; }\n".repeat(40));
    program.write("code/table.bin", "no source code");
    let pretrain = "[pretrain]\n\
        tasks = [\"more.jsonl\"]\n\
        kernels_per_task = 3\n\
        flaws = { off_by_one = 0.5 }\n\
        sources = [\"code\"]\n\
        max_kernel_share = 0.9\n\
        fit = { lr = 3e-3, total_epochs = 2, train_batch_size = 4 }\n";
    let config = CONFIG.replace("embeddings = 256", "embeddings = 2048");
    program.write("a.toml", &format!("{config}\n{pretrain}"));
    let run = |stage| program.run(&["train", stage, "a.toml", "--device", "cpu", "--out", "out"]);
    let ran = run("run");
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs_err::read_to_string(program.path(path)).unwrap()).unwrap()
    };
    let corpus = read("out/pretrain/corpus.json");
    let without: u64 =
        corpus["without"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(without > 0, "there is no rule for torch.cummax: {corpus:#}");
    assert_eq!(corpus["tasks"], train, "only what is trained on: {corpus:#}");
    assert!(corpus["kernels"].as_u64().unwrap() <= 3 * (train - without), "{corpus:#}");
    let tokens = |of: &str| corpus[of].as_f64().unwrap();
    let share = tokens("kernel_tokens") / (tokens("kernel_tokens") + tokens("source_tokens"));
    assert!((0.6..=0.9).contains(&share), "{corpus:#}");
    assert_eq!(corpus["sources"]["files"], 2, "{corpus:#}");
    assert!(corpus["source_tokens"].as_u64().unwrap() > 100, "{corpus:#}");
    let epochs = read("out/pretrain/done.json")["epochs"].as_array().unwrap().clone();
    let losses: Vec<f64> = epochs.iter().map(|epoch| epoch["loss"].as_f64().unwrap()).collect();
    assert!(losses.len() == 2 && losses[1] < losses[0], "{losses:?}");
    assert!(program.path("out/sft/checkpoint/model.safetensors").is_file());
    assert!(run("pretrain").stderr.contains("pretrain: already done"));
    let report = fs_err::read_to_string(program.path("out/report.html")).unwrap();
    assert!(report.contains("pretrain"));

    // Hardly any kernel is left where they are to be rare.
    program.write("rare.toml", &format!("{config}\n{}", pretrain.replace("0.9", "0.0001")));
    let rare = ["train", "pretrain", "rare.toml", "--device", "cpu", "--out", "rare"];
    assert_eq!(program.run(&rare).code, Some(2), "demos come first");
}

/// Three arms continue from the same demonstrations, with two seeds each.
#[test]
fn experiment_arms_share_stages_and_are_compared() {
    let program = Program::new();
    program.write("task.py", TASK);
    let base = CONFIG.replace("embeddings = 256", "embeddings = 1024");
    let ppo = "[ppo]\ntotal_training_steps = 2\ntrain_batch_size = 1\nrollout_n = 3\nlr = 1e-3\n";
    program.write(
        "base.toml",
        &format!("max_turns = 2\n\n{base}\n[sampling]\nmax_new_tokens = 16\n\n{ppo}"),
    );
    let experiment = "\
        base = \"base.toml\"\n\
        seeds = [5, 6]\n\
        shared = [\"demos\"]\n\
        with.ppo.rollout_n = 2\n\
        [[arms]]\n\
        name = \"critic\"\n\
        with.ppo.critic_warmup_steps = 1\n\
        [[arms]]\n\
        name = \"rloo\"\n\
        with.ppo.algorithm = \"rloo\"\n\
        [[arms]]\n\
        name = \"without-examples\"\n\
        with.collect.episodes_per_task = 1\n\
        with.rft = { reward_threshold = 1e9, fit = { lr = 1e-3, total_epochs = 1 } }\n";
    program.write("two.toml", experiment);
    let run = || program.run(&["experiment", "two.toml", "--device", "cpu", "--json"]);
    let first = run();
    assert_eq!(first.code, Some(0), "{}", first.show());
    let arms = first.object()["arms"].as_array().unwrap().clone();
    for (arm, name) in arms.iter().zip(["critic", "rloo"]) {
        assert_eq!(arm["name"], name);
        let seeds: Vec<_> =
            arm["runs"].as_array().unwrap().iter().map(|r| r["seed"].clone()).collect();
        assert_eq!(seeds, [5, 6], "{arm:#}");
        assert_eq!(arm["runs"][1]["updates"], 2, "{arm:#}");
        assert_eq!(arm["runs"][1]["episodes"], 4, "{arm:#}");
    }
    let out = "warpwright-runs/two";
    let read = |path: &str| fs_err::read(program.path(out).join(path)).unwrap();
    let weights = |run: &str| read(&format!("arms/{run}/sft/checkpoint/model.safetensors"));
    let tokenizer = |run: &str| read(&format!("arms/{run}/model/tokenizer.json"));
    // What arms of one seed do alike is done once.
    assert_eq!(first.stderr.matches("sft: already done").count(), 4, "{}", first.show());
    for seed in [5, 6] {
        let critic = format!("critic/seed-{seed}");
        for arm in ["rloo", "without-examples"] {
            let run = format!("{arm}/seed-{seed}");
            assert!(weights(&critic) == weights(&run) && tokenizer(&critic) == tokenizer(&run));
        }
        assert!(program.path(out).join(format!("arms/{critic}/ppo/done.json")).is_file());
    }
    assert!(weights("critic/seed-5") != weights("critic/seed-6"));
    // A run that has nothing to learn from is over, and the others go on.
    let third = &first.object()["arms"][2];
    assert_eq!((&third["failed"], &third["runs"]), (&json!([5, 6]), &json!([])), "{third:#}");
    assert!(first.stderr.contains("every collected episode was left out"), "{}", first.show());
    let ran =
        program.run(&["analyze", "plot", out, "reward.svg", "--label", "rloo=RLOO", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let plot = ran.object();
    assert_eq!(plot["arms"].as_array().unwrap().len(), 2, "the arm that failed has no line");
    assert_eq!(plot["arms"][0]["arm"], "critic");
    assert_eq!(plot["arms"][0]["points"][1]["seeds"], 2);
    assert!(fs_err::read_to_string(program.path("reward.svg")).unwrap().contains("RLOO"));
    let critic = "arms/critic/seed-5/ppo/checkpoint";
    assert!(program.path(out).join(critic).join("critic").exists());
    let table = String::from_utf8(read("experiment.md")).unwrap();
    assert!(table.contains("| `rloo` | 2 |"), "{table}");
    let page = String::from_utf8(read("report.html")).unwrap();
    assert!(
        page.contains("2 runs, 0 collapsed")
            && page.contains("2 failed before reinforcement learning")
    );
    // What is done is not done again.
    let again = run();
    assert_eq!(again.object()["arms"], first.object()["arms"], "{}", again.show());
    assert!(!again.stderr.contains(" of 6"), "{}", again.show());

    program.write("bad.toml", &experiment.replace("seeds = [5, 6]", "seeds = [5, 6]\nseed = 1"));
    let ran = program.run(&["experiment", "bad.toml", "--device", "cpu"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("no key `seed`"), "{}", ran.show());
}

/// Trains a chat model with LoRA adapters, then plays an episode with it. The chat model is a model from scratch with
/// renamed special tokens.
#[test]
fn pretrained_chat_model_is_trained_with_lora() {
    let program = Program::new();
    program.write("task.py", TASK);
    let scratch = CONFIG
        .replace("vocab_size = 512", "vocab_size = 1024")
        .replace("embeddings = 256", "embeddings = 20000");
    program.write("scratch.toml", &scratch);
    let ran = program.run(&["train", "run", "scratch.toml", "--device", "cpu", "--out", "scratch"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let (made, chat) = (program.path("scratch/sft/checkpoint"), program.path("chat"));
    fs_err::create_dir(&chat).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs_err::copy(made.join(name), chat.join(name)).unwrap();
    }
    let words = fs_err::read_to_string(chat.join("tokenizer.json")).unwrap();
    let words = words.replace("<|task|>", "<|im_start|>").replace("<|end|>", "<|im_end|>");
    fs_err::write(chat.join("tokenizer.json"), words).unwrap();

    let config = "\
        [tasks]\n\
        train = [\"task.py\"]\n\n\
        [pretrained]\n\
        path = \"out/../chat\"\n\
        lora_rank = 4\n\n\
        [sampling]\n\
        max_new_tokens = 24\n\n\
        [single_turn]\n\
        algorithm = \"rloo\"\n\
        total_training_steps = 1\n\
        train_batch_size = 1\n\
        rollout_n = 2\n\
        lr = 1e-3\n";
    program.write("chat.toml", config);
    fs_err::create_dir(program.path("out")).unwrap();
    let ran = program.run(&["train", "run", "chat.toml", "--device", "cpu", "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let checkpoint = program.path("out/single-turn/checkpoint");
    assert!(checkpoint.join("adapter_model.safetensors").is_file());
    assert!(!checkpoint.join("model.safetensors").exists(), "the model stays where it is");
    let export = ["trajectory", "export", "out/single-turn/record", "--format", "tokens"];
    let ran = program.run(&[&export[..], &["--out", "tokens.jsonl"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let lines = fs_err::read_to_string(program.path("tokens.jsonl")).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let text = line.to_string();
    assert!(text.len() > 10_000, "the skill and the tools are told: {text:.300}");

    let ran = program.run(&["watch", "out"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(
        ran.stdout.contains("single-turn done") && ran.stdout.contains(" critic/rewards/mean"),
        "{}",
        ran.show()
    );
    let told = program.run(&["watch", "chat"]);
    assert!(
        told.code == Some(2) && told.stderr.contains("it is not a training run"),
        "{}",
        told.show()
    );

    // By a way that has `..` in it: jails show nothing there.
    let policy = "native:out/../out/single-turn/checkpoint";
    let play = ["optimize", "task.py", "--device", "cpu", "--policy", policy, "--max-turns", "1"];
    let ran = program.run(&play);
    assert_eq!(ran.code, Some(3), "it speaks, and not of kernels: {}", ran.show());
    let untold = config.replace("path = \"out/../chat\"", "path = \"scratch\"");
    program.write("chat.toml", &untold);
    let told = refused(&program, &["run", "chat.toml", "--out", "other"]);
    assert!(told.contains("failed to load the model in"), "{told}");
}

#[test]
fn incomplete_checkpoint_is_refused_as_a_policy() {
    let program = Program::new();
    program.write("task.py", TASK);
    let run = |policy: &str| {
        let ran = program.run(&["optimize", "task.py", "--device", "cpu", "--policy", policy]);
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        ran.stderr
    };
    let told = run("native:nowhere");
    assert!(
        told.contains("nowhere: it has no config.json") && told.contains("checkpoint"),
        "{told}"
    );
    program.write("half/config.json", "{}");
    let told = run("native:half");
    assert!(told.contains("tokenizer.json"), "{told}");
}

/// The mean reward rises from the first to the last training steps. Running the command again repeats no stage,
/// and another seed in the same folder is refused.
#[test]
fn training_from_scratch_raises_the_reward() {
    let program = Program::new();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/smoke-cpu.toml");
    let run = |seed: &'static str| {
        let mut arguments = vec!["train", "run", configs, "--device", "cpu", "--out", "out"];
        arguments.extend(["--seed", seed, "--json"]);
        program.run(&arguments)
    };
    let first = run("1");
    assert_eq!(first.code, Some(0), "{}", first.show());
    let figure = |of: &Value, name: &str| of[name].as_f64().unwrap();
    let told = first.object();
    assert!(figure(&told, "reward_last") > figure(&told, "reward_first"), "{}", first.show());
    assert_eq!(told["stages"], serde_json::json!(["demos", "sft", "collect", "value", "ppo"]));
    assert!(figure(&told, "judged") > 3.0, "{told}");

    let again = run("1");
    assert!(again.stderr.contains("ppo: already done"), "{}", again.show());
    assert_eq!(again.object()["judged"], 0);
    assert_eq!(again.object()["reward_last"], told["reward_last"]);

    // What is left of it can be looked at, and works on a task like any other policy.
    assert_eq!(program.run(&["report", "out", "--out", "page.html"]).code, Some(0));
    let page = fs_err::read_to_string(program.path("page.html")).unwrap();
    assert!(
        page.contains("critic/rewards/mean by step") && page.contains("val/loss by epoch"),
        "{page}"
    );
    assert!(page.contains("the best of step 12"), "{page}");
    let events =
        fs_err::metadata(program.path("out/tensorboard/ppo/events.out.tfevents.1.warpwright"));
    assert!(events.unwrap().len() > 1000);
    program.write("task.py", include_str!("../../../../configs/smoke-cpu/row_norm.py"));
    let mut arguments = vec!["optimize", "task.py", "--device", "cpu", "--out", "run", "--json"];
    arguments.extend(["--policy", "native:out/ppo/checkpoint", "--max-turns", "2"]);
    let optimized = program.run(&arguments);
    assert!(matches!(optimized.code, Some(0 | 3)), "{}", optimized.show());
    let written = optimized.object();
    assert!(written["policy"].as_str().unwrap().ends_with("out/ppo/checkpoint"), "{written}");
    assert!(written["turns"].as_u64().unwrap() > 0, "{written}");

    let another = run("2");
    assert_eq!(another.code, Some(2), "{}", another.show());
    assert!(another.object()["error"]["message"].as_str().unwrap().contains("--seed"));
}

/// Number of epochs or steps that a stage has saved; no limit if it is done.
fn made(stage: &std::path::Path) -> usize {
    if stage.join("done.json").exists() {
        return usize::MAX;
    }
    let Ok(text) = fs_err::read(stage.join("checkpoint/state.json")) else { return 0 };
    let state: Value = serde_json::from_slice(&text).unwrap();
    state.as_array().or_else(|| state["updates"].as_array()).map_or(0, Vec::len)
}

/// A run that is killed repeatedly results in the same weights as an uninterrupted one, bit for bit, also when its
/// record is deleted.
#[test]
fn long_killed_training_resumes_to_identical_weights() {
    let program = Program::new();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/smoke-cpu.toml");
    let arguments = |out: &'static str| {
        ["train", "run", configs, "--device", "cpu", "--seed", "4", "--out", out]
    };
    assert_eq!(program.run(&arguments("alone")).code, Some(0));
    // What the judge measures differs from time to time: both are to be told the same.
    let kept = fs_err::read_to_string(program.path("alone/verdicts.jsonl")).unwrap();
    program.write("killed/verdicts.jsonl", &kept);
    for (stage, count) in [
        ("demos", 1),
        ("sft", 5),
        ("sft", 25),
        ("collect", 1),
        ("value", 3),
        ("ppo", 2),
        ("ppo", 4),
    ] {
        let mut child = program.command(&arguments("killed")).spawn().unwrap();
        while made(&program.path("killed").join(stage)) < count {
            assert!(child.try_wait().unwrap().is_none(), "{stage}: it ended before {count}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "{stage}: it was killed");
        let record = program.path("killed/ppo/record");
        if record.exists() {
            fs_err::remove_dir_all(record).unwrap();
        }
    }
    let last = program.run(&arguments("killed"));
    assert_eq!(last.code, Some(0), "{}", last.show());
    for stage in ["sft", "value", "ppo"] {
        for file in ["model.safetensors", "optimizer.safetensors"] {
            let read = |out: &str| {
                fs_err::read(program.path(out).join(stage).join("checkpoint").join(file)).unwrap()
            };
            assert!(read("alone") == read("killed"), "{stage}: {file} differs");
        }
    }
}

/// Runs every stage: a policy from scratch, PPO on single messages, rejection fine-tuning,
/// PPO on episodes, and an evaluation of every policy on the held-out tasks.
#[test]
fn long_all_stages_train_and_raise_the_reward() {
    let program = Program::new();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/tiny-cpu.toml");
    let ran = program.run(&["train", "run", configs, "--device", "cpu", "--out", "out", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let stages = ["demos", "sft", "single_turn", "collect", "rft", "value", "ppo", "eval"];
    assert_eq!(ran.object()["stages"], serde_json::json!(stages));
    let done = |stage: &str| -> Value {
        let path = program.path("out").join(stage).join("done.json");
        serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap()
    };
    let reward = |update: &Value| update["report"]["reward"].as_f64().unwrap();
    let (single, ppo) = (done("single-turn"), done("ppo"));
    let first = reward(&single["updates"][0]);
    let last = reward(ppo["updates"].as_array().unwrap().last().unwrap());
    assert!(last > first + 0.3, "{first} to {last}");
    let eval = done("eval");
    for policy in
        ["sft", "sft-first", "single-turn", "rft", "ppo", "ppo-first", "teacher", "exhaustive"]
    {
        assert!(eval["policies"][policy].is_object(), "{eval}");
    }
    let gap = &eval["gaps"]["rft to ppo-first"];
    assert!(gap["tasks"].as_u64().unwrap() > 0, "{eval}");
}
