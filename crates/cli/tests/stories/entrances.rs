//! The listeners of `ensemble up`: what a page of another name and a visitor from outside get there.

use std::io::{Read, Write, copy};
use std::net::{TcpListener, TcpStream};
use std::thread::spawn;

use ensemble_testkit::free_port;

use crate::ensemble::{User, up, up_at};

/// The status and the text of the answer to a request with these fields.
fn ask(address: &str, line: &str, fields: &[&str]) -> (u16, String) {
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nConnection: close\r\n{}\r\n\r\n", fields.join("\r\n")).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

/// A way to the server from another address, which changes nothing on it.
fn another_way_to(url: &str) -> String {
    let (listener, to) = (TcpListener::bind("127.0.0.2:0").unwrap(), url.trim_start_matches("http://").to_owned());
    let address = format!("http://{}", listener.local_addr().unwrap());
    spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut server = TcpStream::connect(&to).unwrap();
            let (mut back, mut there) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            spawn(move || copy(&mut there, &mut server));
            spawn(move || copy(&mut back, &mut client));
        }
    });
    address
}

const VERSION: &str = "GET /v1/version";
const PUBLIC: &str = "https://ensemble.example.com";
const HOST: &str = "Host: ensemble.example.com";

#[test]
fn a_page_of_another_name_reaches_nothing_here() {
    let user = User::new(None);
    let (_up, url) = up(&user, &["--no-runner"]);
    let port = url.rsplit(':').next().unwrap();
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        assert_eq!(ask(&url, VERSION, &[&format!("Host: {host}:{port}")]).0, 200, "{host}");
    }
    // After its name leads here, a browser sends the name of the page and no field of a proxy.
    let rebound = format!("Host: evil.example:{port}");
    for line in ["GET /", VERSION, "POST /v1/auth/challenge", "GET /v1/account"] {
        let (status, answer) = ask(&url, line, &[&rebound, "Content-Length: 0"]);
        assert!(status == 421 && answer.contains("MISDIRECTED_REQUEST"), "{line}: {answer}");
    }
    assert_eq!(ask(&url, VERSION, &[HOST]).0, 421, "it has no public address");
}

#[test]
fn an_address_that_the_server_does_not_know_is_named_with_what_to_type() {
    let user = User::new(None);
    let (_up, url) = up(&user, &["--no-runner"]);
    let address = another_way_to(&url);
    for command in [&["phone", &address, "--check"][..], &["--server", &address, "login"]] {
        let refused = user.fail(command);
        assert!(refused.contains("ensemble up --public-url"), "{command:?}: {refused}");
    }
}

#[test]
fn a_public_address_is_a_name_of_the_loopback_listener() {
    let user = User::new(None);
    let (_up, printed) =
        up_at(&user, &["up", "--no-runner", "--json", "--listen", "127.0.0.1:0", "--public-url", PUBLIC]);
    let url = printed["url"].as_str().unwrap();
    assert!(ask(url, VERSION, &["Host: localhost"]).1.contains("\"local\":true"));
    let (status, version) = ask(url, VERSION, &[HOST]);
    assert!(status == 200 && !version.contains("local"), "a proxy may carry it: {version}");
    assert_eq!(ask(url, VERSION, &["Host: www.ensemble.example.com"]).0, 421);
}

#[test]
fn a_proxy_of_ones_own_has_a_listener_and_limits_of_its_own() {
    let user = User::new(None).with_variable("LIMIT_SIGN_IN", "20");
    let port = free_port().to_string();
    let start =
        ["up", "--no-runner", "--json", "--listen", "127.0.0.1:0", "--public-url", PUBLIC, "--proxy-port", &port];
    let (_up, printed) = up_at(&user, &start);
    let (url, proxy) = (printed["url"].as_str().unwrap(), printed["forProxy"].as_str().unwrap());
    assert_eq!(proxy, format!("127.0.0.1:{port}"));
    let caller = "X-Forwarded-For: 192.0.2.1";
    let (status, version) = ask(proxy, VERSION, &[HOST, caller]);
    assert!(status == 200 && !version.contains("local"), "{version}");
    for (fields, status) in [
        ([HOST, "X-Real-IP: 192.0.2.1"], 400),
        ([HOST, "X-Forwarded-For: 192.0.2.1, unknown"], 400),
        (["Host: localhost", caller], 421),
        (["Host: evil.example", caller], 421),
    ] {
        assert_eq!(ask(proxy, VERSION, &fields).0, status, "{fields:?}");
    }
    // A visitor who asks too often, also as the address of this computer, takes no sign-in from the people here.
    for caller in ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 6.6.6.6, 127.0.0.1"] {
        let ask = || ask(proxy, "POST /v1/auth/challenge", &[HOST, caller, "Content-Length: 0"]).0;
        assert_eq!(ask(), 200, "{caller}");
        assert!((0..200).any(|_| ask() == 429), "{caller}");
    }
    assert_eq!(ask(proxy, VERSION, &[HOST, "X-Forwarded-For: 192.0.2.2"]).0, 200);
    user.succeed(&["--server", url, "login"]);
    user.succeed(&["whoami"]);
}

#[test]
fn a_proxy_that_cannot_work_is_refused_with_what_to_type() {
    let user = User::new(None);
    let unnamed = user.fail(&["up", "--no-runner", "--proxy-port", "8088"]);
    assert!(unnamed.contains("ensemble up --public-url https://NAME --proxy-port 8088"), "{unnamed}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let start = ["up", "--no-runner", "--listen", "127.0.0.1:0", "--public-url", PUBLIC, "--proxy-port", &port];
    let refused = user.fail(&start);
    assert!(refused.contains("--proxy-port"), "{refused}");
    assert!(!user.files().exists(), "nothing was created");
    for name in ["TRUSTED_PROXIES", "EDGE_PROXY_TRUSTED_PROXIES"] {
        let trusting =
            user.command(&["up", "--no-runner", "--public-url", PUBLIC]).env(name, "127.0.0.1").output().unwrap();
        let said = String::from_utf8(trusting.stderr).unwrap();
        assert!(!trusting.status.success() && said.contains("--proxy-port PORT"), "{said}");
    }
}
