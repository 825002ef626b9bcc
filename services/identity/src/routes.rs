//! The routes of the public listener.

mod invites;

use ensemble_chassis::{Access, Routes, Tag, delete, get, patch, post};
use ensemble_types::accounts::{
    Account, Challenge, CreateMachineToken, CreatedMachineToken, Jwks, MachineTokenPage, PublicUser, SignIn, SignedIn,
    UpdateAccount,
};
use ensemble_types::deleted::Deleted;
use ensemble_types::devices::{
    ChangeDevices, CreatedDeviceLink, Device, DeviceContentRing, DeviceLink, DeviceLinkRequest, DeviceListPage,
    Devices, UpdateDevice,
};
use ensemble_types::problem::Code::{
    Conflict, DeviceListConflict, DeviceRemoved, InvalidCursor, NotFound, QuotaExceeded, RegistrationClosed,
    Unauthenticated, Unavailable, UserNotFound, VersionMismatch,
};
use ensemble_types::pushes::PushKey;

use crate::handlers::device_links::WaitQuery;
use crate::handlers::devices::ListsQuery;
use crate::handlers::tokens::PageQuery;
use crate::handlers::{account, auth, device_links, devices, jwks, tokens, users};

const ACCOUNTS: Tag = Tag("Accounts", "Signing in, accounts, and tokens of machines.");
const DEVICES: Tag = Tag("Devices", "The signed list of an account's devices, and linking a new one.");

pub(crate) fn table() -> Routes {
    invites::add(links(devices_of(accounts(Routes::new()))))
}

fn accounts(routes: Routes) -> Routes {
    routes
        .row(
            post("/v1/auth/challenge")
                .access(Access::Public)
                .operation(ACCOUNTS, "createChallenge", "Gives random bytes to sign, valid once and for a minute.")
                .about(
                    "Begins a sign-in. The answer also names the origins that a sign-in may be for, because \
                     the signature covers the origin that the client has called.",
                )
                .response::<Challenge>(200)
                .errors(&[Unavailable])
                .handler(auth::challenge),
        )
        .row(
            post("/v1/auth")
                .access(Access::Public)
                .operation(
                    ACCOUNTS,
                    "signIn",
                    "Signs in with a signed challenge; the first time, it makes the account.",
                )
                .about(
                    "The account is an Ed25519 key pair: sign the challenge and send the signature. Every \
                     sign-in that is not valid gets the same 401. The token is valid until `expiresAt`.",
                )
                .body::<SignIn>()
                .max_body(4 << 10)
                .response::<SignedIn>(200)
                .errors(&[Unauthenticated, DeviceRemoved, RegistrationClosed, UserNotFound])
                // A misspelt `create` would make an account.
                .closed()
                .handler(auth::sign_in),
        )
        .row(
            get("/v1/account")
                .access(Access::User)
                .operation(ACCOUNTS, "getAccount", "Reads your account.")
                .about(
                    "What the service keeps of the account that the token belongs to, with what its clients \
                     share among themselves.",
                )
                .response::<Account>(200)
                .errors(&[NotFound])
                .handler(account::read),
        )
        .row(
            patch("/v1/account")
                .access(Access::User)
                .operation(
                    ACCOUNTS,
                    "updateAccount",
                    "Sets your display name, your content key with the account key's signature, or what your \
                     clients share.",
                )
                .about(
                    "Members that are left out keep their value. A new content key counts only with a \
                     signature by the account key, so neither a stolen token nor the server can replace it.",
                )
                .body::<UpdateAccount>()
                .max_body(96 << 10)
                .response::<Account>(200)
                .errors(&[NotFound, VersionMismatch])
                .handler(account::update),
        )
        .row(
            get("/v1/users/{id}")
                .access(Access::User)
                .operation(
                    ACCOUNTS,
                    "getUser",
                    "Reads a user's public data. Verify the signature before sealing to the content key.",
                )
                .about(
                    "For accounts that have no device list. Of others take the content key from the newest \
                     list that `GET /v1/users/{id}/devices` gives.",
                )
                .response::<PublicUser>(200)
                .errors(&[NotFound])
                .handler(users::read),
        )
        .row(
            post("/v1/auth/tokens")
                .access(Access::User)
                .operation(
                    ACCOUNTS,
                    "createMachineToken",
                    "Makes a token that can only act as one machine's runner; it is shown only once.",
                )
                .about("The token signs a runner in. It reads and changes its own machine, and takes leases for it.")
                .body::<CreateMachineToken>()
                .response::<CreatedMachineToken>(201)
                .errors(&[Conflict])
                .closed()
                .handler(tokens::create),
        )
        .row(
            get("/v1/auth/tokens")
                .access(Access::User)
                .operation(ACCOUNTS, "listMachineTokens", "Lists your valid machine tokens, newest first.")
                .about("Only tokens that are still valid. The tokens themselves are never shown again.")
                .query::<PageQuery>()
                .response::<MachineTokenPage>(200)
                .errors(&[InvalidCursor])
                .closed()
                .handler(tokens::list),
        )
        .row(
            delete("/v1/auth/tokens/{id}")
                .access(Access::User)
                .operation(ACCOUNTS, "revokeToken", "Revokes a machine token, or the token that the call is made with.")
                .about(
                    "Each service refuses the token within ten seconds. With the id (`jti`) of the calling \
                     token this signs out.",
                )
                .response::<Deleted>(200)
                .errors(&[NotFound])
                .closed()
                .handler(tokens::revoke),
        )
        .row(
            get("/.well-known/jwks.json")
                .access(Access::Public)
                .operation(ACCOUNTS, "getSigningKeys", "The keys that tokens are verified with.")
                .about(
                    "A JSON Web Key Set (RFC 7517). A key that was replaced stays here until the last token \
                     that it signed has expired.",
                )
                .response::<Jwks>(200)
                .handler(jwks::read),
        )
}

/// 64 lists of 32 KiB, whose quotes are escaped, 64 rings of 8 KiB, and what else is in the body.
const MAX_CHANGE: usize = 4 << 20;

fn devices_of(routes: Routes) -> Routes {
    routes
        .row(
            get("/v1/devices")
                .access(Access::UserOrRecovery)
                .operation(DEVICES, "getDevices", "Reads your signed device list, and the names of your devices.")
                .about(
                    "A name counts where it opens the commitment in the list. Kinds and notifications are kept outside \
                     the list and are not signed. Verify the list before you trust a key in it.",
                )
                .response::<Devices>(200)
                .errors(&[NotFound])
                .closed()
                .handler(devices::list),
        )
        .row(
            post("/v1/devices")
                .access(Access::UserOrRecovery)
                .operation(
                    DEVICES,
                    "changeDevices",
                    "Takes your next device list, with the content ring sealed to each device that may have it.",
                )
                .about(
                    "The list has the next version and is signed by a primary device or by the recovery \
                     words. The first list of an account is answered with 201. A list that another device has \
                     overtaken is 409 DEVICE_LIST_CONFLICT. A service that was restored from a backup takes the \
                     lists that it lacks in `lists`: each is checked as if it came alone, and what it removes is \
                     removed again.",
                )
                .body::<ChangeDevices>()
                .max_body(MAX_CHANGE)
                .in_turn()
                .response::<Devices>(201)
                .response::<Devices>(200)
                .errors(&[NotFound, Conflict, DeviceListConflict, QuotaExceeded])
                .closed()
                .handler(devices::change),
        )
        .row(
            get("/v1/devices/content-ring")
                .access(Access::UserOrRecovery)
                .operation(DEVICES, "getContentRing", "Reads the content ring that is sealed to the calling device.")
                .about(
                    "The ring has the private content keys of all epochs. Only the box key of the calling \
                     device opens it.",
                )
                .response::<DeviceContentRing>(200)
                .errors(&[NotFound])
                .secret()
                .handler(devices::content_ring),
        )
        .row(
            patch("/v1/devices/{id}")
                .access(Access::User)
                .operation(DEVICES, "updateDevice", "Sets the calling device's notifications.")
                .about("Members that are left out keep their value.")
                .body::<UpdateDevice>()
                .max_body(4 << 10)
                .response::<Device>(200)
                .errors(&[NotFound])
                .closed()
                .handler(devices::update),
        )
        .row(
            get("/v1/devices/push")
                .access(Access::User)
                .operation(
                    DEVICES,
                    "getPushKey",
                    "Reads the key for push subscriptions: the `applicationServerKey` of browsers.",
                )
                .about("Every device of this server subscribes with the same key (RFC 8292).")
                .response::<PushKey>(200)
                .handler(devices::push_key),
        )
        .row(
            get("/v1/users/{id}/devices")
                .access(Access::AnyToken)
                .operation(
                    DEVICES,
                    "listDeviceLists",
                    "Reads a user's signed device lists, the oldest first. Verify each from the one before it.",
                )
                .about(
                    "Begin at the first version, or after the newest version that you have verified. A \
                     machine may read its owner's lists.",
                )
                .query::<ListsQuery>()
                .in_turn()
                .response::<DeviceListPage>(200)
                .errors(&[NotFound])
                .handler(devices::of_user),
        )
}

fn links(routes: Routes) -> Routes {
    routes
        .row(
            post("/v1/auth/links")
                .access(Access::User)
                .operation(DEVICES, "createDeviceLink", "Begins to link a device. It ends after ten minutes.")
                .about(
                    "Show the id and a secret of your own to the new device, as a QR code for example. Only a \
                     primary device may begin a link.",
                )
                .max_body(4 << 10)
                .response::<CreatedDeviceLink>(201)
                .errors(&[Conflict])
                .closed()
                .handler(device_links::create),
        )
        .row(
            get("/v1/auth/links/{id}")
                .access(Access::Public)
                .operation(
                    DEVICES,
                    "getDeviceLink",
                    "Says how far a link is. The account that made it gets the request of the new device too.",
                )
                .about(
                    "With `waitMs` the call waits for the next step. It needs no token. With a token of the \
                     account that made the link, the answer has the request of the new device, whether it came from \
                     the server's own computer (`local`), and whether another device asked later (`again`).",
                )
                .query::<WaitQuery>()
                .response::<DeviceLink>(200)
                .errors(&[NotFound])
                .secret()
                .handler(device_links::read),
        )
        .row(
            post("/v1/auth/links/{id}/request")
                .access(Access::Public)
                .operation(
                    DEVICES,
                    "requestDeviceLink",
                    "Asks to be linked, once, with a signature by the new device's key.",
                )
                .about(
                    "The request stands until the account's device approves it with its next device list, or \
                     refuses it. A second request is 409 CONFLICT.",
                )
                .body::<DeviceLinkRequest>()
                .max_body(4 << 10)
                .response::<DeviceLink>(200)
                .errors(&[NotFound, Conflict])
                .closed()
                .handler(device_links::ask),
        )
        .row(
            post("/v1/auth/links/{id}/refusal")
                .access(Access::User)
                .operation(DEVICES, "refuseDeviceLink", "Ends a link.")
                .about("Any device of the account may. The new device learns that it was refused, and the link is used up.")
                .max_body(4 << 10)
                .response::<DeviceLink>(200)
                .errors(&[NotFound, Conflict])
                .handler(device_links::refuse),
        )
}
