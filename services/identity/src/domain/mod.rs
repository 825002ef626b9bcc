//! Rules about accounts and credentials. No I/O; the time is an argument.

mod account;
mod device;
mod device_link;
mod device_list;
mod encoding;
mod invite;
mod origin;
mod push;
mod schedule;
mod sign_in;
mod token;

pub(crate) use account::{Account, AccountChange, BadAccountChange, ContentKey, Registration};
pub(crate) use device::{CallingDevice, Device};
pub(crate) use device_link::{DeviceLink, LinkClosed, LinkId, LinkStep, MOST_OPEN_LINKS, is_link_of, link_id};
pub(crate) use device_list::{BadList, Difference, Vouching, follow, lists, rings};
pub(crate) use encoding::encode;
pub(crate) use invite::{DAY, INVITES_A_DAY, Invite, InviteClosed, InviteId, InviteStep, MOST_OPEN_INVITES};
pub(crate) use origin::Origin;
pub(crate) use push::{BadSubscription, Subscription, kinds, kinds_text, wait};
pub(crate) use schedule::{Plan, Published, Schedule};
pub(crate) use sign_in::{MalformedProof, Proof};
pub(crate) use token::{BadLifetime, MachineToken, TokenLifetimes};
