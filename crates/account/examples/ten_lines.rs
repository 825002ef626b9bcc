//! Follows a session and prompts it: `ten_lines HOME SERVER SESSION`.

#![expect(clippy::print_stdout, reason = "it shows what the agent says")]

use ensemble_account::{Account, Computer, Home, Notices};
use ensemble_client::Client;
use ensemble_protocol::transcript::view::Shown;
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::TurnState;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("HOME SERVER SESSION");
    let home = Home::new(next()?.into(), Computer::named("ten lines"), Notices::none());
    let account = Account::open(&home, Client::builder(next()?).build()?).await?;
    let mut followed = account.live(next()?.parse()?).await?.follow().await?;
    followed.live.sender().prompt("How far are you?").await?;
    loop {
        for id in followed.next().await?.items {
            match followed.live.view.item(id).map(|item| &item.shown) {
                Some(Shown::Text(part)) => println!("{}", visible(&part.text)),
                Some(Shown::Turn(turn)) if turn.state == TurnState::Ended => return Ok(()),
                _ => {}
            }
        }
    }
}
