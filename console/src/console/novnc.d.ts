/** The part of noVNC that the page uses; the package has no types. */
declare module "@novnc/novnc" {
  export default class RFB extends EventTarget {
    constructor(target: HTMLElement, urlOrChannel: string | WebSocket, options?: { shared?: boolean });
    scaleViewport: boolean;
    background: string;
    clipboardPasteFrom(text: string): void;
    disconnect(): void;
    focus(): void;
    sendCtrlAltDel(): void;
  }
}
