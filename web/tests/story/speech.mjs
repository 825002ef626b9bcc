// Speech of a synthesizer, and the microphone and the ears of a page: what is spoken goes into the page's microphone, and the time of the
// voice is measured on the sound that arrives.
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A wave file of espeak-ng with these words. */
export async function synthesized(words) {
  const folder = await mkdtemp(join(tmpdir(), "ensemble-speech-"));
  try {
    const file = join(folder, "speech.wav");
    await run("espeak-ng", ["-v", "en", "-w", file, "--", words]);
    return await readFile(file);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Before a page is opened: its microphone is silent until a story speaks into it. */
export async function giveMouthAndEars(context) {
  await context.addInitScript(() => {
    /** Louder than this is a sound, of 1. */
    const SOUND = 0.02;
    const audio = new AudioContext();
    const microphone = audio.createMediaStreamDestination();
    navigator.mediaDevices.getUserMedia = async () => {
      await audio.resume();
      return microphone.stream.clone();
    };
    const now = () => performance.timeOrigin + performance.now();
    const listeners = new Set();
    let lastSound = 0;
    const listen = (track) => {
      const analyser = new AnalyserNode(audio, { fftSize: 1024 });
      audio.createMediaStreamSource(new MediaStream([track])).connect(analyser);
      const samples = new Float32Array(analyser.fftSize);
      const watch = setInterval(() => {
        if (track.readyState === "ended") return clearInterval(watch);
        analyser.getFloatTimeDomainData(samples);
        if (samples.every((sample) => Math.abs(sample) < SOUND)) return;
        lastSound = now();
        for (const one of listeners) one(lastSound);
      }, 10);
    };
    globalThis.RTCPeerConnection = class extends RTCPeerConnection {
      constructor(...given) {
        super(...given);
        this.addEventListener("track", ({ track }) => track.kind === "audio" && listen(track));
      }
    };
    globalThis.__speech = {
      /** Speaks a wave file, and says when it ended. */
      speak: async (base64) => {
        const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
        const buffer = await audio.decodeAudioData(bytes.buffer);
        // The file ends with silence, which is not waited for.
        const samples = buffer.getChannelData(0);
        const end = samples.findLastIndex((sample) => Math.abs(sample) > SOUND) / buffer.sampleRate;
        const source = new AudioBufferSourceNode(audio, { buffer });
        source.connect(microphone);
        const begun = now();
        source.start();
        await new Promise((ended) => source.addEventListener("ended", ended));
        return begun + end * 1_000;
      },
      /** When the first sound of the voice comes after this time. */
      soundAfter: (time) =>
        new Promise((resolve) => {
          const one = (at) => at > time && listeners.delete(one) && resolve(at);
          listeners.add(one);
        }),
      /** Waits until the voice has said nothing for a while. */
      quiet: async () => {
        while (now() - lastSound < 1_500) await new Promise((soon) => setTimeout(soon, 50));
      },
    };
  });
}
