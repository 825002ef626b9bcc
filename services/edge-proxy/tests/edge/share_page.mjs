// Runs the script of the page behind a public link against the vectors of crates/client, with just enough of a browser
// around it. Reads {html, vectors} from standard input; prints what the page shows.
let input = '';
for await (const piece of process.stdin) input += piece;
const { html, vectors, fragment } = JSON.parse(input);
const script = html.split('<script>')[1].split('</script>')[0];

const startingWith = (purpose) => vectors.contents.filter((content) => content.aad.startsWith(purpose));
const messages = startingWith('ensemble-message-v1').map((content, at) =>
  ({ seq: at + 1, content: content.blob, createdAt: '2026-03-26T00:00:00.000Z' }));
const view = {
  session: { id: vectors.sessionId, metadata: vectors.metadata[0].blob, status: 'active', lastSeq: messages.length },
  encryptedKey: vectors.link.blob, messages, hasMore: false, expiresAt: null, remainingUses: 3, viewToken: 'view',
};

const make = () => ({
  textContent: '', className: '', hidden: false, children: [],
  append(...items) { this.children.push(...items); },
  prepend(...items) { this.children.unshift(...items); },
  addEventListener() {},
});
const elements = {};
const asked = [];
let shown;
const done = new Promise((resolve) => { shown = resolve; });
const browser = {
  document: {
    querySelector: () => ({ content: '' }),
    getElementById: (id) => (elements[id] ??= make()),
    createElement: make,
  },
  location: { pathname: '/share/token', hash: fragment },
  sessionStorage: { getItem: () => null, setItem() {}, removeItem() {} },
  fetch: async (address, options) => {
    asked.push({ address, headers: Object.keys(options.headers) });
    return { ok: true, json: async () => view };
  },
};
browser.document.getElementById('more').addEventListener = () => shown();
new Function(...Object.keys(browser), script)(...Object.values(browser));
await done;
process.stdout.write(JSON.stringify({
  asked,
  status: elements.status.textContent,
  messages: elements.messages.children.map((item) => item.children[1].textContent),
}));
