//! Prints the OpenAPI document; `make openapi` writes it to docs/openapi.json.

#![expect(clippy::print_stdout, reason = "this program prints the document")]

fn main() -> anyhow::Result<()> {
    print!("{}", ensemble_all_in_one::api::as_text()?);
    Ok(())
}
