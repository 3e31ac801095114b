/** Style sheets of libraries under a policy that forbids inline styles.
 *
 * The terminal makes `style` elements, which the page's policy blocks. It accepts another document, so it gets one
 * whose `style` elements hand their text to a constructed style sheet.
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

/** Return the document, with `style` elements that work under the policy. */
export function documentWithSheets(): Document {
  if (!customElements.get(NAME)) customElements.define(NAME, SheetElement);
  return new Proxy(document, {
    get(target, name) {
      if (name === "createElement")
        return (tag: string, options?: ElementCreationOptions) => target.createElement(tag === "style" ? NAME : tag, options);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value as (...given: unknown[]) => unknown).bind(target) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
}
