//! The routes of the public listener.

use ensemble_chassis::{Access, Routes, delete, get, patch, post};
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

pub(crate) fn table() -> Routes {
    links(devices_of(accounts(Routes::new())))
}

fn accounts(routes: Routes) -> Routes {
    const TAG: &str = "Accounts";
    routes
        .row(
            post("/v1/auth/challenge")
                .access(Access::Public)
                .summary(TAG, "Gives random bytes to sign, valid once and for a minute.")
                .response::<Challenge>(200)
                .errors(&[Unavailable])
                .handler(auth::challenge),
        )
        .row(
            post("/v1/auth")
                .access(Access::Public)
                .summary(TAG, "Signs in with a signed challenge; the first time, it makes the account.")
                .body::<SignIn>()
                .max_body(4 << 10)
                .response::<SignedIn>(200)
                .errors(&[Unauthenticated, DeviceRemoved, RegistrationClosed, UserNotFound])
                .handler(auth::sign_in),
        )
        .row(
            get("/v1/account")
                .access(Access::User)
                .summary(TAG, "Reads your account.")
                .response::<Account>(200)
                .errors(&[NotFound])
                .handler(account::read),
        )
        .row(
            patch("/v1/account")
                .access(Access::User)
                .summary(TAG, "Sets your display name, your content key with the account key's signature, or what your clients share.")
                .body::<UpdateAccount>()
                .max_body(96 << 10)
                .response::<Account>(200)
                .errors(&[NotFound, VersionMismatch])
                .handler(account::update),
        )
        .row(
            get("/v1/users/{id}")
                .access(Access::User)
                .summary(TAG, "Reads a user's public data. Verify the signature before sealing to the content key.")
                .response::<PublicUser>(200)
                .errors(&[NotFound])
                .handler(users::read),
        )
        .row(
            post("/v1/auth/tokens")
                .access(Access::User)
                .summary(TAG, "Makes a token that can only act as one machine's runner; it is shown only once.")
                .body::<CreateMachineToken>()
                .response::<CreatedMachineToken>(201)
                .errors(&[Conflict])
                .closed()
                .handler(tokens::create),
        )
        .row(
            get("/v1/auth/tokens")
                .access(Access::User)
                .summary(TAG, "Lists your valid machine tokens, newest first.")
                .query::<PageQuery>()
                .response::<MachineTokenPage>(200)
                .errors(&[InvalidCursor])
                .closed()
                .handler(tokens::list),
        )
        .row(
            delete("/v1/auth/tokens/{id}")
                .access(Access::User)
                .summary(TAG, "Revokes a machine token, or the token that the call is made with.")
                .response::<Deleted>(200)
                .errors(&[NotFound])
                .closed()
                .handler(tokens::revoke),
        )
        .row(
            get("/.well-known/jwks.json")
                .access(Access::Public)
                .summary(TAG, "The keys that tokens are verified with.")
                .response::<Jwks>(200)
                .handler(jwks::read),
        )
}

/// 64 rings of 8 KiB, and what else is in the body.
const MAX_CHANGE: usize = 640 << 10;

fn devices_of(routes: Routes) -> Routes {
    const TAG: &str = "Devices";
    routes
        .row(
            get("/v1/devices")
                .access(Access::UserOrRecovery)
                .summary(TAG, "Reads your signed device list, and the names of your devices.")
                .response::<Devices>(200)
                .errors(&[NotFound])
                .closed()
                .handler(devices::list),
        )
        .row(
            post("/v1/devices")
                .access(Access::UserOrRecovery)
                .summary(
                    TAG,
                    "Takes your next device list, with the content ring sealed to each device that may have it.",
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
                .summary(TAG, "Reads the content ring that is sealed to the calling device.")
                .response::<DeviceContentRing>(200)
                .errors(&[NotFound])
                .secret()
                .handler(devices::content_ring),
        )
        .row(
            patch("/v1/devices/{id}")
                .access(Access::User)
                .summary(
                    TAG,
                    "Names a device: a primary device names each, another one names itself. Sets the calling device's notifications.",
                )
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
                .summary(TAG, "Reads the key for push subscriptions: the `applicationServerKey` of browsers.")
                .response::<PushKey>(200)
                .handler(devices::push_key),
        )
        .row(
            get("/v1/users/{id}/devices")
                .access(Access::AnyToken)
                .summary(
                    TAG,
                    "Reads a user's signed device lists, the oldest first. Verify each from the one before it.",
                )
                .query::<ListsQuery>()
                .in_turn()
                .response::<DeviceListPage>(200)
                .errors(&[NotFound])
                .handler(devices::of_user),
        )
}

fn links(routes: Routes) -> Routes {
    const TAG: &str = "Devices";
    routes
        .row(
            post("/v1/auth/links")
                .access(Access::User)
                .summary(TAG, "Begins to link a device. It ends after ten minutes.")
                .max_body(4 << 10)
                .response::<CreatedDeviceLink>(201)
                .errors(&[Conflict])
                .closed()
                .handler(device_links::create),
        )
        .row(
            get("/v1/auth/links/{id}")
                .access(Access::Public)
                .summary(
                    TAG,
                    "Says how far a link is. The account that made it gets the request of the new device too.",
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
                .summary(TAG, "Asks to be linked, once, with a signature by the new device's key.")
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
                .summary(TAG, "Ends a link.")
                .max_body(4 << 10)
                .response::<DeviceLink>(200)
                .errors(&[NotFound, Conflict])
                .handler(device_links::refuse),
        )
}
