// Opens each question and answer of a look and checks its signature, and makes others for the same keys.

import * as seal from "./seal.mjs";

const [QUESTION, ANSWER] = ["ensemble-look-v1", "ensemble-look-answer-v1"];

export async function check(given, assert) {
  const made = structuredClone(given);
  const utf8 = new TextEncoder();
  const digest = async (text) => seal.toText(new Uint8Array(await crypto.subtle.digest("SHA-256", utf8.encode(text))));
  const json = (bytes) => JSON.parse(new TextDecoder().decode(bytes));
  const { owner, machine, machineKey, questionAad } = given;
  const [asker, runner] = [await keys(given.askerSeed), await keys(given.machineSeed)];
  assert.equal(seal.toText(asker.box.public), given.askerBoxKey);
  assert.equal(seal.toText(runner.box.public), given.machineBoxKey);
  assert.equal(seal.toText(runner.signer.public), machineKey);
  assert.equal(questionAad, `${QUESTION}\n${owner}\n${machine}`);

  async function openQuestion(blob) {
    const { body, user, key, sig } = json(await seal.openRing(blob, runner.box, questionAad, QUESTION));
    if (!(await seal.verify(key, sig, `${QUESTION}\n${machine}\n${user}\n${body}`))) throw new Error("not signed");
    return { body, user, key, sig };
  }

  async function openAnswer(blob, question) {
    const opened = json(await seal.openRing(blob, asker.box, `${ANSWER}\n${machine}\n${question}`, ANSWER));
    const text = `${ANSWER}\n${machine}\n${question}\n${opened.body}`;
    if (!(await seal.verify(machineKey, opened.sig, text))) throw new Error("not signed");
    return opened.body;
  }

  for (const [at, look] of given.looks.entries()) {
    const asked = await openQuestion(look.question.blob);
    assert.equal(asked.body, look.question.body);
    assert.equal(asked.user, owner);
    assert.equal(asked.key, seal.toText(asker.signer.public));
    assert.equal(await digest(asked.body), look.digest);
    assert.equal(await openAnswer(look.answer.blob, look.digest), look.answer.body);

    const sig = await seal.sign(asker.signer, `${QUESTION}\n${machine}\n${owner}\n${asked.body}`);
    const again = utf8.encode(JSON.stringify({ ...asked, sig }));
    made.looks[at].question.blob = await seal.sealRing(again, runner.box.public, questionAad, QUESTION);
    const { body } = look.answer;
    const aad = `${ANSWER}\n${machine}\n${look.digest}`;
    const answer = { body, sig: await seal.sign(runner.signer, `${aad}\n${body}`) };
    made.looks[at].answer.blob = await seal.sealRing(utf8.encode(JSON.stringify(answer)), asker.box.public, aad, ANSWER);
  }
  for (const { blob, verdict } of given.badQuestions) {
    if (verdict === "closed") await assert.rejects(openQuestion(blob));
    else await openQuestion(blob);
  }
  for (const { blob } of given.badAnswers) await assert.rejects(openAnswer(blob, given.looks[0].digest));
  return made;
}

async function keys(seed) {
  const bytes = seal.fromText(seed);
  return { signer: await seal.accountKey(bytes), box: await seal.deviceBox(bytes) };
}
