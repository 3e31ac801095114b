/** Sign-in with name and password, a token, a one-time link, or by an OpenID provider. */
import { useEffect, useState } from "preact/hooks";
import { beginAtProvider, provider, signIn } from "../api/sync";
import { reason, Refused } from "../api/client";
import { go } from "../core/route";
import { t } from "../texts/en";

const LINK = /^#login=([A-Za-z0-9_-]{16,200})$/;
/** Key of the tab's storage: secret and page of an attempt at the provider, until it sends the browser back. */
const ATTEMPT = "openid-attempt";

export function SignIn() {
  const [isToken, setToken] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [label, setLabel] = useState<string | null>(null);
  const tryTo = async (what: Parameters<typeof signIn>[0], wrong: string | null) => {
    setBusy(true);
    setProblem(null);
    try {
      await signIn(what);
    } catch (error) {
      setProblem(error instanceof Refused && error.status === 401 && wrong ? wrong : reason(error));
      setBusy(false);
    }
  };
  useEffect(() => {
    document.title = `${t.signin.title} · ${t.product}`;
    provider().then(setLabel, () => setLabel(null));
    const query = new URLSearchParams(location.search);
    const secret = LINK.exec(location.hash)?.[1];
    const [code, state, error] = [query.get("code"), query.get("state"), query.get("error")];
    const [attempt, from] = JSON.parse(sessionStorage.getItem(ATTEMPT) ?? "[]") as [string?, string?];
    sessionStorage.removeItem(ATTEMPT);
    const isBack = state !== null && (code !== null || error !== null);
    if (!secret && !isBack) return;
    // Neither a secret nor a code stays in the address or the history.
    go(isBack ? from ?? location.pathname : location.pathname + location.search, "replace");
    if (secret) void tryTo({ link: secret }, t.signin.linkUsed);
    else if (error !== null) setProblem(`${t.signin.refused} ${query.get("error_description") ?? error}`);
    else if (attempt === undefined) setProblem(t.signin.otherTab);
    else if (code !== null && state !== null) void tryTo({ code, state, secret: attempt }, null);
  }, []);
  const onProvider = async () => {
    setBusy(true);
    try {
      const { url, secret } = await beginAtProvider();
      sessionStorage.setItem(ATTEMPT, JSON.stringify([secret, location.pathname + location.search]));
      location.assign(url);
    } catch (error) {
      setProblem(reason(error));
      setBusy(false);
    }
  };
  const onSubmit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? "");
    void tryTo(isToken ? { token: text("token") } : { username: text("username"), password: text("password") }, t.signin.wrong);
  };
  return (
    <main class="signin">
      <form onSubmit={onSubmit}>
        <div class="brand"><span class="logo" aria-hidden="true" />{t.product}</div>
        <h1>{t.signin.title}</h1>
        {isToken ? (
          <label class="field" key="token"><span>{t.signin.tokenField}</span><input name="token" type="password" required autocomplete="off" /></label>
        ) : (
          <>
            <label class="field" key="name"><span>{t.signin.name}</span><input name="username" required autocomplete="username" autocapitalize="none" spellcheck={false} autofocus /></label>
            <label class="field" key="password"><span>{t.signin.password}</span><input name="password" type="password" required autocomplete="current-password" /></label>
          </>
        )}
        {problem && <p class="wrong" role="alert">{problem}</p>}
        <button class="primary" disabled={isBusy}>{t.signin.submit}</button>
        <button class="plain" type="button" onClick={() => setToken(!isToken)}>{isToken ? t.signin.byName : t.signin.token}</button>
        {label !== null && <button type="button" disabled={isBusy} onClick={() => void onProvider()}>{t.signin.with} {label}</button>}
        <p class="faint">{t.signin.hint}</p>
      </form>
    </main>
  );
}
