//! What a prompt is made of: its signer, its text and its attachments.

use ensemble_protocol::transcript::body::{Attachment, Prompt};
use ensemble_protocol::transcript::bounds::MOST_ATTACHMENTS;
use ensemble_protocol::transcript::digest;
use ensemble_protocol::transcript::rules::Signer;
use ensemble_protocol::transcript::words::{ReceiptCode, When};

use super::commands::Done;
use crate::kept::Queued;

/// A prompt with its signer. A prompt that is too large, or has something that this version does not know, is not taken.
pub(super) fn queued(prompt: Prompt, local_id: String, signer: &Signer) -> Result<(Queued, When), Done> {
    let Prompt { text, attachments, when, directory: _ } = prompt;
    let is_new = attachments.iter().any(|attachment| matches!(attachment, Attachment::Newer));
    let bytes: usize = attachments.iter().map(Attachment::size).sum();
    if is_new || bytes > MOST_ATTACHMENTS {
        let text =
            "It has an attachment of a kind that the machine does not know, or more than 512 KiB of them.".to_owned();
        return Err(Done::Rejected(ReceiptCode::Unsupported, Some(text)));
    }
    let (user, key, account) = (signer.user, signer.key.clone(), signer.account.clone());
    let prompt =
        Queued { user, key, account, local_id, text, attachments, is_approved: false, is_given: false, is_task: false };
    Ok((prompt, when))
}

/// All of a prompt, with its attachments.
pub(super) fn whole(prompt: &Queued) -> String {
    let mut whole = prompt.text.clone();
    for attachment in &prompt.attachments {
        whole.push_str(&match attachment {
            Attachment::Resource { resource } => format!("\n\n[file {}]\n{}", resource.uri, resource.text),
            Attachment::Image { mime_type, data } => {
                format!("\n\n[image {mime_type}, {} bytes in base64, SHA-256 {}]", data.len(), digest(data))
            }
            Attachment::Newer => String::new(),
        });
    }
    whole
}
