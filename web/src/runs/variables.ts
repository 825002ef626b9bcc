/** Variables of a plan, as `ensemble run --var` has them: `{{vars.name}}` in prompts, titles and directories stands for a value. */

const NAME = /^[A-Za-z_][\w-]*$/;

export class Variables {
  /** The names that the plan uses, in their order. */
  readonly used = new Set<string>();
  readonly #values: Readonly<Record<string, string>>;

  constructor(values: Readonly<Record<string, string>>) {
    this.#values = values;
  }

  /** The text with values in place of variables. `wrong` says what cannot be filled in. Values are not searched for variables again. In a
   * prompt the server looks for placeholders, so braces in a value are escaped: the value may come from other people. */
  fill(text: string, wrong: (what: string) => never, isPrompt = false): string {
    // A backslash says that these braces are meant as they are.
    return text.replace(/\\?\{\{\s*vars\.((?:(?!\}\}|\{\{).)*)\}\}/gs, (found, given: string) => {
      if (found.startsWith("\\")) return found;
      const name = given.trim();
      if (!NAME.test(name))
        return wrong(`{{vars.${name.slice(0, 40)}}} is not the name of a variable: letters, digits, - and _ after a letter.`);
      this.used.add(name);
      const value = this.#values[name] ?? "";
      return isPrompt ? value.replaceAll("{{", "\\{{") : value;
    });
  }

  /** The first that has no value. */
  get missing(): string | undefined {
    return [...this.used].find((name) => (this.#values[name] ?? "") === "");
  }
}
