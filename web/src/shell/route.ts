/** The addresses of the page, which can be sent to a colleague. */

export const paths = {
  home: "/",
  session: (id: string) => `/sessions/${id}`,
  machines: "/machines",
  runs: "/runs",
  run: (id: string) => `/runs/${id}`,
  settings: "/settings",
  start: "/start",
};
