use super::*;

fn show(text: &str, deployment: &Deployment) -> String {
    match load(&[Source::new("r.yaml", text)], deployment) {
        Ok(loaded) => format!("{:#?}\n{:#?}", loaded.rules, loaded.warnings),
        Err(refused) => refused.to_string(),
    }
}

#[test]
fn scratch() {
    let text = std::fs::read_to_string("/tmp/scratch.yaml").unwrap();
    let shared = std::env::var("SHARED").is_ok();
    println!("{}", show(&text, &Deployment { shared_store: shared, ..Deployment::default() }));
}
