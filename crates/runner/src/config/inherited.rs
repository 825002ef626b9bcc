//! The variables that each program inherits unless the configuration says otherwise.

use ensemble_types::runs::Provider;

/// The default list of variables that each program inherits from the runner. A name that ends in `*` is a prefix.
pub(super) fn default_pass_env(provider: Provider) -> Vec<String> {
    const SHARED: &[&str] = &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "LC_*",
        "TZ",
        "TERM",
        "TMPDIR",
        "XDG_*",
        "SSH_AUTH_SOCK",
        "GIT_*",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
    ];
    let own: &[&str] = match provider {
        // The last ones are of Amazon Bedrock, Google Vertex AI and Microsoft Foundry.
        Provider::Claude => &[
            "ANTHROPIC_*",
            "CLAUDE_*",
            "AWS_*",
            "AZURE_*",
            "CLOUDSDK_*",
            "CLOUD_ML_REGION",
            "GCLOUD_PROJECT",
            "GOOGLE_*",
            "VERTEX_*",
        ],
        // The last ones are of Amazon Bedrock and Azure.
        Provider::Codex => &["OPENAI_*", "CODEX_*", "AWS_*", "AZURE_*"],
        Provider::Gemini => &["GEMINI_*", "GOOGLE_*", "CLOUDSDK_*"],
        Provider::Other(_) => &[],
    };
    SHARED.iter().chain(own).map(|name| (*name).to_owned()).collect()
}
