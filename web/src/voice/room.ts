/** The room of one conversation on LiveKit. The only file that knows livekit-client, and it is loaded when a conversation begins. */
import {
  ConnectionState,
  createLocalAudioTrack,
  DisconnectReason,
  type LocalAudioTrack,
  type LocalTrack,
  MediaDeviceFailure,
  ParticipantKind,
  Room,
  RoomEvent,
  RpcError,
  setLogLevel,
  Track,
  type TextStreamReader,
} from "livekit-client";
import { METHODS, type PersonTools, Refusal } from "./tools.ts";

// It writes errors about connections that the server has ended in good order. What goes wrong is said on the screen.
setLogLevel("silent");

/** Where LiveKit sends what was said, and the names of its attributes. */
const TRANSCRIPTION = "lk.transcription";
const SEGMENT = "lk.segment_id";
const FINAL = "lk.transcription_final";
const AGENT_STATE = "lk.agent.state";
/** The characters of one utterance that are kept. */
const MOST_CHARACTERS = 4_000;

export interface Said {
  /** The same again: it has grown, or is put another way. */
  segment: string;
  isMe: boolean;
  text: string;
  isFinal: boolean;
}

export interface RoomEvents {
  said: (said: Said) => void;
  /** The agent's state in its own word; nothing: it is not in the room. */
  agent: (state: string | undefined) => void;
  speaking: (who: { me: boolean; agent: boolean }) => void;
  /** Sound may not be played before a button was pressed. */
  mayPlay: (may: boolean) => void;
  /** The connection is being restored, or is back. */
  mending: (isMending: boolean) => void;
  left: (why: LeftWhy) => void;
}

/** `closed`: the server ended the conversation. `elsewhere`: it was opened in another window. */
export type LeftWhy = "closed" | "elsewhere" | "lost";

export class NoMicrophone extends Error {
  readonly why: "refused" | "missing" | "in use" | "other";

  constructor(why: NoMicrophone["why"]) {
    super(`no microphone: ${why}`);
    this.why = why;
  }
}

export type Microphone = LocalAudioTrack;

const FAILURES: Partial<Record<MediaDeviceFailure, NoMicrophone["why"]>> = {
  [MediaDeviceFailure.PermissionDenied]: "refused",
  [MediaDeviceFailure.NotFound]: "missing",
  [MediaDeviceFailure.DeviceInUse]: "in use",
};

/** The microphone, which the browser may ask the person about. Fails with {@link NoMicrophone}. */
export async function openMicrophone(): Promise<Microphone> {
  try {
    return await createLocalAudioTrack();
  } catch (error) {
    const failure = MediaDeviceFailure.getFailure(error);
    throw new NoMicrophone((failure && FAILURES[failure]) ?? "other");
  }
}

export interface Place {
  url: string;
  token: string;
  agentIdentity: string;
}

export class VoiceRoom {
  readonly #room = new Room({ adaptiveStream: false, dynacast: false });
  readonly #events: RoomEvents;
  readonly #place: Place;
  #isLeaving = false;

  constructor(place: Place, tools: PersonTools, events: RoomEvents) {
    this.#place = place;
    this.#events = events;
    const room = this.#room;
    const who = () => this.#tellAgent();
    room
      .on(RoomEvent.ParticipantConnected, who)
      .on(RoomEvent.ParticipantDisconnected, who)
      .on(RoomEvent.ParticipantAttributesChanged, who)
      .on(RoomEvent.Reconnected, who);
    room.on(RoomEvent.ActiveSpeakersChanged, (speakers) => {
      events.speaking({
        me: speakers.some((one) => one.isLocal),
        agent: speakers.some((one) => one.identity === place.agentIdentity),
      });
    });
    room.on(RoomEvent.TrackSubscribed, (track, _publication, participant) => {
      // Only the agent's sound is played.
      if (track.kind === Track.Kind.Audio && participant.identity === place.agentIdentity) track.attach();
    });
    room.on(RoomEvent.TrackUnsubscribed, (track) => void track.detach());
    room.on(RoomEvent.AudioPlaybackStatusChanged, () => events.mayPlay(room.canPlaybackAudio));
    room.on(RoomEvent.Reconnecting, () => events.mending(true)).on(RoomEvent.Reconnected, () => events.mending(false));
    room.on(RoomEvent.Disconnected, (reason) => {
      if (!this.#isLeaving) events.left(whyOf(reason));
    });
    room.registerTextStreamHandler(
      TRANSCRIPTION,
      (reader, { identity }) => void this.#read(reader, identity).catch(() => undefined),
    );
    for (const method of METHODS) {
      room.registerRpcMethod(method, async ({ callerIdentity, payload }) => {
        const isAgent = room.remoteParticipants.get(callerIdentity)?.kind === ParticipantKind.AGENT;
        const [answer, error] = await tools.call(method, { identity: callerIdentity, isAgent }, payload).then(
          (text) => [text, undefined] as const,
          (caught: unknown) => ["", caught] as const,
        );
        // The library throws an error that cannot be caught when it answers into a room that is closed.
        if (this.#isLeaving || room.state === ConnectionState.Disconnected) return new Promise<never>(() => undefined);
        if (error !== undefined) throw error instanceof Refusal ? new RpcError(error.code, error.message) : error;
        return answer;
      });
    }
  }

  /** Joins with the microphone, where there is one. Fails because the room cannot be reached. */
  async join(microphone: Microphone | undefined): Promise<void> {
    await this.#room.connect(this.#place.url, this.#place.token, { autoSubscribe: true });
    this.#tellAgent();
    if (microphone) await this.#room.localParticipant.publishTrack(microphone as LocalTrack);
    this.#events.mayPlay(this.#room.canPlaybackAudio);
  }

  async mute(isMuted: boolean): Promise<void> {
    await this.#room.localParticipant.setMicrophoneEnabled(!isMuted);
  }

  /** After a press of a button. */
  async play(): Promise<void> {
    await this.#room.startAudio();
  }

  async leave(): Promise<void> {
    this.#isLeaving = true;
    await this.#room.disconnect();
  }

  #tellAgent(): void {
    const agent = this.#room.remoteParticipants.get(this.#place.agentIdentity);
    this.#events.agent(agent?.kind === ParticipantKind.AGENT ? (agent.attributes[AGENT_STATE] ?? "listening") : undefined);
  }

  async #read(reader: TextStreamReader, identity: string): Promise<void> {
    const attributes = reader.info.attributes ?? {};
    const isMe = identity === this.#room.localParticipant.identity;
    if (!isMe && identity !== this.#place.agentIdentity) return;
    const segment = (attributes[SEGMENT] ?? reader.info.id).slice(0, 100);
    let text = "";
    for await (const piece of reader) {
      text = (text + piece).slice(0, MOST_CHARACTERS);
      this.#events.said({ segment, isMe, text, isFinal: false });
    }
    // What was understood so far of the person is sent again and again; what the agent says is one stream.
    this.#events.said({ segment, isMe, text, isFinal: !isMe || attributes[FINAL] !== "false" });
  }
}

function whyOf(reason: DisconnectReason | undefined): LeftWhy {
  if (reason === DisconnectReason.DUPLICATE_IDENTITY) return "elsewhere";
  const closed = [DisconnectReason.ROOM_DELETED, DisconnectReason.ROOM_CLOSED, DisconnectReason.PARTICIPANT_REMOVED];
  return reason !== undefined && closed.includes(reason) ? "closed" : "lost";
}
