// Questions to the server. A newer question of the same kind gives the older one up.
const under_way = new Map();

async function read(response) {
  let told = null;
  try {
    told = await response.json();
  } catch {
    /* no JSON: said below */
  }
  if (!response.ok) throw new Error(told?.error ?? `the server answered ${response.status}`);
  return told;
}

export async function ask(path, question, kind = path) {
  under_way.get(kind)?.abort();
  const control = new AbortController();
  under_way.set(kind, control);
  const init =
    question === undefined
      ? { signal: control.signal }
      : {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(question),
          signal: control.signal,
        };
  return read(await fetch(`/api/${path}`, init));
}
export const given_up = (error) => error?.name === "AbortError";

// A job: started, watched until it ends, cancelled with `stop()`. `onnews` gets each summary with new reports.
export function job(path, question, onnews) {
  let key = null,
    stopped = false;
  const stop = async () => {
    stopped = true;
    if (key) await fetch(`/api/jobs/${key}`, { method: "DELETE" });
  };
  const done = (async () => {
    let told = await ask(path, question, `job ${path} ${Math.random()}`),
      since = 0;
    key = told.job;
    if (stopped) await stop();
    for (;;) {
      since = told.reports;
      onnews?.(told);
      if (!["waiting", "running"].includes(told.state)) break;
      told = await read(await fetch(`/api/jobs/${key}?since=${since}&wait=15`));
    }
    if (told.state === "failed") throw new Error(told.error);
    return told;
  })();
  return { done, stop };
}

let listed = null;
export const catalogue = () =>
  (listed ??= ask("catalogue").catch((e) => {
    listed = null;
    throw e;
  }));
