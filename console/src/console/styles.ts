/** Style sheets of libraries under a policy that forbids inline styles.
 *
 * The terminal makes `style` elements, which the page's policy blocks. So while it makes them, it gets elements that
 * hand their text to a constructed style sheet, which the policy allows.
 */
class SheetElement extends HTMLElement {
  #sheet = new CSSStyleSheet();

  connectedCallback(): void {
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, this.#sheet];
  }

  disconnectedCallback(): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== this.#sheet);
  }

  override get textContent(): string {
    return "";
  }

  override set textContent(text: string) {
    this.#sheet.replaceSync(text);
  }
}

const NAME = "ganeti-sheet";

/** Run `make`, whose `style` elements then work under the policy. */
export function withSheets<T>(make: () => T): T {
  if (!customElements.get(NAME)) customElements.define(NAME, SheetElement);
  const real = document.createElement.bind(document);
  document.createElement = ((tag: string, options?: ElementCreationOptions) =>
    real(tag === "style" ? NAME : tag, options)) as typeof document.createElement;
  try {
    return make();
  } finally {
    // Only the page's own override goes; the prototype's method appears again.
    delete (document as Partial<Document>).createElement;
  }
}
