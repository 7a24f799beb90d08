use super::*;

fn mismatch(family: InputFamily) -> Mismatch {
    Mismatch {
        output: 0,
        check: "fresh inputs 3".to_owned(),
        family,
        elements: 1,
        of: 4,
        max_abs_error: 1.0,
        atol: 1e-6,
        rtol: 1e-7,
        examples: Vec::new(),
    }
}

#[test]
fn mismatch_describes_inputs_that_the_task_does_not_sample() {
    let mut text = String::new();
    render_mismatch(&mut text, &mismatch(InputFamily::Normal));
    assert!(text.contains("normal numbers of mean zero"), "{text}");
    let mut own = String::new();
    render_mismatch(&mut own, &mismatch(InputFamily::Own));
    assert!(!own.contains("these inputs"), "{own}");
}

#[test]
fn device_tier_is_named_beside_the_time() {
    use crate::judge::Judge;

    let judge = crate::scripted::ScriptedJudge::new(&[2.0]);
    let candidate = warpwright_record::candidate::Candidate::from_files([].into());
    let mut verdict = judge.measure_afresh(&candidate).unwrap();
    verdict.times_ms.candidate = verdict.speedup.best;
    verdict.device = "cuda:0".to_owned();
    assert!(!render(&verdict).contains("tier"), "{}", render(&verdict));
    verdict.tier = Tier::Device;
    let text = render(&verdict);
    assert!(text.contains("ms (device tier)"), "{text}");
}
