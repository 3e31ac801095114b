/** Sign-in with name and password, a token, or a one-time link. */
import { useEffect, useState } from "preact/hooks";
import { signIn } from "../api/sync";
import { reason, Refused } from "../api/client";
import { t } from "../texts/en";

const LINK = /^#login=([A-Za-z0-9_-]{16,200})$/;

export function SignIn() {
  const [isToken, setToken] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const tryTo = async (what: Parameters<typeof signIn>[0], wrong: string) => {
    setBusy(true);
    setProblem(null);
    try {
      await signIn(what);
    } catch (error) {
      setProblem(error instanceof Refused && error.status === 401 ? wrong : reason(error));
      setBusy(false);
    }
  };
  useEffect(() => {
    document.title = `${t.signin.title} · ${t.product}`;
    const secret = LINK.exec(location.hash)?.[1];
    if (!secret) return;
    // A secret does not stay in the address or the history.
    history.replaceState(null, "", location.pathname + location.search);
    void tryTo({ link: secret }, t.signin.linkUsed);
  }, []);
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
        <p class="faint">{t.signin.hint}</p>
      </form>
    </main>
  );
}
