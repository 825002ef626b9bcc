//! The words of a transcript that come from a fixed list. A word that this version does not know is kept as it is.

/// An enum of words on the wire. A word that is not in the list is kept in `Other`, so a newer writer is never an error.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$about])* $variant,)+
            /// A word that this version does not know.
            Other(Box<str>),
        }

        impl $name {
            /// The words that this version knows.
            pub const KNOWN: &'static [&'static str] = &[$($word),+];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }

            /// The word with this text. A text that is not in the list becomes `Other`.
            pub fn of(text: &str) -> Self {
                match text {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.into()),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self::of(&text))
            }
        }
    };
}

pub(crate) use words;

words! {
    /// When a prompt is to be taken up.
    When {
        /// In the turn that runs, where the agent can be steered.
        Now = "now",
        /// After the turn that runs.
        Next = "next",
    }
}

words! {
    /// Whether a turn begins or ends.
    TurnState { Started = "started", Ended = "ended", }
}

words! {
    /// What began a turn.
    Cause {
        Prompt = "prompt",
        /// Work that the agent had left in the background.
        Background = "background",
        /// A task of a run, whose prompt is in `text`.
        Task = "task",
    }
}

words! {
    /// Why a turn ended: ACP's `StopReason` (agentclientprotocol.com, "Prompt turn"), with `limit` and `error` of ours.
    StopReason {
        EndTurn = "end_turn",
        Cancelled = "cancelled",
        /// The model reached the length of an answer, or the agent the number of its steps.
        MaxTokens = "max_tokens",
        Refusal = "refusal",
        /// A bound of cost or of use is reached.
        Limit = "limit",
        Error = "error",
    }
}

words! {
    /// What a tool does: ACP's `ToolKind` (agentclientprotocol.com, "Tool calls").
    ToolKind {
        Read = "read",
        Edit = "edit",
        Delete = "delete",
        Move = "move",
        Search = "search",
        Execute = "execute",
        Think = "think",
        Fetch = "fetch",
        SwitchMode = "switch_mode",
        /// Something else, the word of ACP.
        Unnamed = "other",
    }
}

words! {
    /// How far a tool call is: ACP's `ToolCallStatus`, with `interrupted` of ours.
    ToolStatus {
        Pending = "pending",
        InProgress = "in_progress",
        Completed = "completed",
        Failed = "failed",
        /// The turn was interrupted, or the agent died, before the call had an end.
        Interrupted = "interrupted",
    }
}

words! {
    /// What an option of a permission does: ACP's `PermissionOptionKind`.
    OptionKind {
        AllowOnce = "allow_once",
        AllowAlways = "allow_always",
        RejectOnce = "reject_once",
        RejectAlways = "reject_always",
    }
}

words! {
    /// ACP's `PlanEntryStatus`.
    PlanStatus { Pending = "pending", InProgress = "in_progress", Completed = "completed", }
}

words! {
    /// ACP's `PlanEntryPriority`.
    PlanPriority { High = "high", Medium = "medium", Low = "low", }
}

words! {
    /// What became of a request.
    Outcome {
        /// An option was chosen.
        Selected = "selected",
        /// A question was answered.
        Answered = "answered",
        /// It is no longer asked: the turn was interrupted, or the agent withdrew it or died.
        Withdrawn = "withdrawn",
    }
}

words! {
    /// What became of a command.
    ReceiptOutcome { Queued = "queued", Done = "done", Rejected = "rejected", }
}

words! {
    /// Why a command was rejected.
    ReceiptCode {
        /// This person, or this device, may not do it.
        NotAllowed = "not_allowed",
        BadSignature = "bad_signature",
        /// The key is in no list of that user that the host has.
        UnknownKey = "unknown_key",
        /// It is too old, or its time is in the future.
        Stale = "stale",
        /// This command was taken before.
        Repeated = "repeated",
        /// What it refers to has changed or is over.
        Superseded = "superseded",
        /// It is sealed with an old key of the session.
        OldKey = "old_key",
        WrongDirectory = "wrong_directory",
        /// Too many commands.
        Busy = "busy",
        /// The agent, or this version of the host, cannot do it.
        Unsupported = "unsupported",
        /// A prompt that was taken back while it waited.
        TakenBack = "taken_back",
    }
}

words! {
    /// What the agent may do without asking.
    Mode {
        /// It asks before each change and each command.
        Ask = "ask",
        /// It changes files of its directory without asking.
        Edit = "edit",
        /// It changes nothing.
        Plan = "plan",
        /// It asks nothing.
        Bypass = "bypass",
    }
}

words! {
    /// What a session is doing.
    Phase {
        Starting = "starting",
        Idle = "idle",
        Working = "working",
        /// A permission or a question is open.
        Waiting = "waiting",
        /// The agent was ended because it was idle; the next prompt resumes it.
        Parked = "parked",
        Ended = "ended",
    }
}

words! {
    /// What a guest may command.
    May {
        Prompt = "prompt",
        /// Answers as well.
        Approve = "approve",
        Nothing = "none",
    }
}

words! {
    /// What went wrong with the agent.
    ErrorCode {
        Login = "login",
        Quota = "quota",
        Overloaded = "overloaded",
        /// The conversation no longer fits into what the model reads.
        Context = "context",
        Crashed = "crashed",
        Unknown = "unknown",
    }
}
