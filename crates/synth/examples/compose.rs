//! Prints proposals: `compose FIRST_SEED COUNT`.

use warpwright_synth::{Catalogue, Composer, Grammar, GrammarConfig, Library};

#[expect(clippy::print_stdout, reason = "what it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let first: u64 = words.next().as_deref().unwrap_or("0").parse()?;
    let count: u64 = words.next().as_deref().unwrap_or("1").parse()?;
    let library = Library::new(&[Catalogue::torch()?, Catalogue::transformers()?])?;
    let grammar = Grammar::new(library, GrammarConfig::default())?;
    for seed in first..first + count {
        let proposal = grammar.compose(seed)?;
        println!("# seed {seed}, level {}: {}\n{}", proposal.level, proposal.name, proposal.source);
    }
    Ok(())
}
