/** The graphical console: noVNC, loaded when it is first used. */
import RFB from "@novnc/novnc";
import { Connector } from "./socket";
import type { ConsoleState } from "./socket";
import type { Opened } from "./serial";

export function openScreen(box: HTMLElement, name: string, report: (state: ConsoleState, text: string) => void): Opened {
  let screen: RFB | null = null;
  let clipboard = "";
  const connector = new Connector(name, "vnc", (address, opened) => new Promise((resolve) => {
    box.replaceChildren();
    const socket = new WebSocket(address, []);
    let code = 0;
    // The library does not tell the code, so the page's own listener does.
    socket.addEventListener("close", (event) => { code = event.code; });
    const current = new RFB(box, socket, { shared: true });
    screen = current;
    current.scaleViewport = true;
    current.background = "transparent";
    current.addEventListener("connect", () => { opened(); current.focus(); });
    current.addEventListener("clipboard", (event) => { clipboard = (event as CustomEvent<{ text: string }>).detail.text; });
    current.addEventListener("disconnect", () => resolve(code));
  }), report);
  void connector.run();
  return {
    stop: () => {
      connector.stop();
      screen?.disconnect();
    },
    copy: () => clipboard,
    paste: (text) => screen?.clipboardPasteFrom(text),
    focus: () => screen?.focus(),
  };
}
