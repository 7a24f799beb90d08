use std::sync::Mutex;

use super::*;
use crate::{Budget, GrammarConfig, Library};

/// An author that answers from a script and records the requests.
struct Script {
    answers: Mutex<Vec<Result<String, AuthorError>>>,
    asked: Mutex<Vec<Vec<Turn>>>,
}

impl Author for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn write(&self, _: &str, conversation: &[Turn]) -> Result<String, AuthorError> {
        self.asked.lock().unwrap().push(conversation.to_vec());
        let mut answers = self.answers.lock().unwrap();
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    }
}

fn llm(answers: &[&str], level: Option<u8>) -> (Llm, Arc<Script>) {
    let answers = answers.iter().map(|answer| Ok((*answer).to_owned())).collect();
    let script = Arc::new(Script { answers: Mutex::new(answers), asked: Mutex::new(Vec::new()) });
    let catalogue = Catalogue::torch().unwrap();
    let library = Library::new(std::slice::from_ref(&catalogue)).unwrap();
    let level = level.and_then(Level::new);
    let config = GrammarConfig { level, budget: Budget::small(), ..GrammarConfig::default() };
    let grammar = Grammar::new(library, config).unwrap();
    let author: Arc<dyn Author> = Arc::clone(&script) as _;
    (Llm::new(author, grammar, &[catalogue], LlmConfig::default()), script)
}

fn task(title: &str, forward: &str) -> String {
    format!(
        "Here it is.\n\n```python\n\"\"\"{title}\"\"\"\n\nimport torch\nfrom torch import nn\n\n\n\
         class Model(nn.Module):\n\
         \x20   def __init__(self) -> None:\n\
         \x20       super().__init__()\n\
         \x20       self.norm = nn.LayerNorm(64)\n\n\
         \x20   def forward(self, x: torch.Tensor) -> torch.Tensor:\n\
         \x20       return {forward}\n\n\n\
         def get_inputs() -> list[torch.Tensor]:\n\
         \x20   return [torch.randn(32, 64)]\n\n\n\
         def get_init_inputs() -> list:\n\
         \x20   return []\n```\nEnjoy."
    )
}

/// Reasons for which answers were no tasks, and names of those that were; all are refused with `reason`.
fn all(llm: &Llm, seed: u64, reason: Option<&str>) -> (Vec<String>, Result<(), AuthorError>) {
    let mut heard = Vec::new();
    let end = llm.compose_until(seed, &mut |proposal| match proposal {
        Ok(proposal) => {
            heard.push(proposal.name);
            reason.map(str::to_owned)
        }
        Err(error) => {
            heard.push(error.name().to_owned());
            Some(error.to_string())
        }
    });
    (heard, end)
}

#[test]
fn proposal_records_its_operators_and_provenance() {
    let answer =
        task("A gated norm, with 2 words more than fit.", "self.norm(x) * torch.sigmoid(x)");
    let (llm, script) = llm(&[&answer], None);
    let proposal = llm.compose(3).unwrap();
    assert_eq!(proposal.name, "gated_norm_with_2_words_more");
    assert_eq!(
        proposal.operators,
        ["torch.nn.LayerNorm", "torch.nn.functional.sigmoid", "torch.mul"]
    );
    assert_eq!(proposal.level, 3);
    assert_eq!(proposal.provenance.composer, "script");
    assert_eq!((proposal.provenance.seed, proposal.provenance.parent.clone()), (3, None));
    assert_eq!(proposal.provenance.catalogue, llm.grammar.library().hash());
    assert!(
        proposal.source.starts_with("\"\"\"A gated") && proposal.source.ends_with("return []\n")
    );
    assert!(proposal.task().facts().is_ok());
    assert_eq!(script.asked.lock().unwrap().len(), 1);
}

#[test]
fn rejection_reasons_continue_the_conversation_up_to_a_limit() {
    let good = task("Gated norm", "self.norm(x) * torch.sigmoid(x)");
    let (llm, script) = llm(&["I would rather not.", &good, &good, &good], None);
    let (heard, end) = all(&llm, 3, Some("an input is ignored"));
    assert_eq!(
        (heard, end),
        (vec!["no_code".into(), "gated_norm".into(), "gated_norm".into()], Ok(()))
    );
    let asked = script.asked.lock().unwrap();
    assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, 5]);
    let [_, Turn::Answered(first), Turn::Asked(why), Turn::Answered(second), Turn::Asked(then)] =
        &asked[2][..]
    else {
        panic!("{asked:?}");
    };
    assert_eq!((first.as_str(), second), ("I would rather not.", &good));
    assert!(why.contains("no code block") && then.contains("an input is ignored"), "{why}{then}");
    assert_eq!(asked[0], asked[2][..1]);
}

#[test]
fn accepted_task_ends_the_conversation() {
    let good = task("Gated norm", "self.norm(x) * torch.sigmoid(x)");
    let (llm, script) = llm(&[&good], None);
    assert_eq!(all(&llm, 3, None), (vec!["gated_norm".to_owned()], Ok(())));
    assert_eq!(script.asked.lock().unwrap().len(), 1);
}

#[test]
fn each_invalid_answer_has_its_reason() {
    let task = |forward: &str| task("Norm", forward);
    let with = |line: &str| {
        task("self.norm(x)").replace("import torch\n", &format!("import torch\n{line}\n"))
    };
    for (answer, name, words) in [
        (task("self.norm(x").clone(), "no_task", "syntax error"),
        (task("x").replace("class Model(", "class Modell("), "no_task", "no class `Model`"),
        (task("x").replace("def get_inputs", "def inputs"), "no_task", "get_inputs"),
        (task("x"), "no_operator", "no known operator"),
        (task("x + torch.randn(32, 64)"), "random", "torch.randn"),
        (task("self.norm(x).to('cuda')"), "device", "line 13"),
        (with("import numpy"), "import", "`numpy`"),
        (task("self.norm(eval('x'))"), "forbidden", "`eval`"),
        (task("self.norm(x)").replace("\n```\n", "\n"), "cut", "not closed"),
    ] {
        let (llm, _) = llm(&[&answer], None);
        let error = llm.compose(1).unwrap_err();
        assert_eq!(error.name(), name, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn copied_example_and_wrong_level_are_refused() {
    let (shown, _) = llm(&[""], None);
    let example = &shown.prompt(5).unwrap().examples[1];
    let answer = format!("```python\n{}```", example.replace("BATCH", "LOT"));
    let (parrot, _) = llm(&[&answer], None);
    assert_eq!(parrot.compose(5).unwrap_err().name(), "parroted");
    let (hard, _) = llm(&[&task("Norm", "self.norm(x) + 1.0")], Some(5));
    let error = hard.compose(5).unwrap_err();
    assert_eq!(error.name(), "level");
    assert!(
        error.to_string().contains("level 2") && error.to_string().contains("level 5"),
        "{error}"
    );
}

#[test]
fn author_without_valid_tasks_ends_with_an_error() {
    let (llm, script) = llm(&["I would rather not."], None);
    let mut reasons = Vec::new();
    let end = (0..20).find_map(|seed| {
        let (heard, end) = all(&llm, seed, None);
        reasons.extend(heard);
        end.err()
    });
    let error = end.unwrap();
    assert!(matches!(error, AuthorError::NoTasks { answers: MAX_USELESS, .. }), "{error}");
    assert!(error.hint().unwrap().contains("more capable"));
    assert_eq!(reasons, ["no_code"; MAX_USELESS as usize]);
    assert_eq!(script.asked.lock().unwrap().len(), MAX_USELESS as usize);
}

#[test]
fn failing_author_ends_the_composition() {
    let (llm, script) = llm(&[""], None);
    let gone = AuthorError::Interrupted { author: "script".to_owned() };
    *script.answers.lock().unwrap() = vec![Err(gone.clone())];
    assert_eq!(all(&llm, 0, None), (Vec::new(), Err(gone)));
}
