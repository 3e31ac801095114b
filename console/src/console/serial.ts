/** The serial console: a terminal that is loaded when it is first used. */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { Connector } from "./socket";
import type { ConsoleState } from "./socket";
import { withSheets } from "./styles";

const SCROLLBACK = 5000;

export interface Opened {
  readonly stop: () => void;
  readonly copy: () => string;
  readonly paste: (text: string) => void;
  readonly focus: () => void;
}

export function openSerial(box: HTMLElement, name: string, report: (state: ConsoleState, text: string) => void): Opened {
  const token = (property: string) => getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  const terminal = new Terminal({
    scrollback: SCROLLBACK, fontFamily: token("--mono"), fontSize: 14, cursorBlink: false,
    screenReaderMode: true, theme: { background: "#0d0f16", foreground: "#e6e8ef", cursor: "#9db0ff", selectionBackground: "#3b4a86" },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  withSheets(() => terminal.open(box));
  fit.fit();
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(box);
  let socket: WebSocket | null = null;
  const encoder = new TextEncoder();
  terminal.onData((text) => { if (socket?.readyState === WebSocket.OPEN) socket.send(encoder.encode(text)); });
  terminal.onBinary((text) => {
    if (socket?.readyState === WebSocket.OPEN) socket.send(Uint8Array.from(text, (one) => one.charCodeAt(0)));
  });
  const connector = new Connector(name, "serial", (address, opened) => new Promise((resolve) => {
    const current = new WebSocket(address);
    socket = current;
    current.binaryType = "arraybuffer";
    current.onopen = () => { opened(); terminal.focus(); };
    current.onmessage = (event: MessageEvent<ArrayBuffer>) => terminal.write(new Uint8Array(event.data));
    current.onclose = (event) => resolve(event.code);
  }), report);
  void connector.run();
  return {
    stop: () => {
      connector.stop();
      socket?.close();
      observer.disconnect();
      terminal.dispose();
    },
    copy: () => terminal.getSelection(),
    paste: (text) => terminal.paste(text),
    focus: () => terminal.focus(),
  };
}
