/** The parts of a transcript, as the client library gives them. */
import type { Permission as PermissionBody, Plan, Question as QuestionBody } from "@ensemble/client/transcript";

export type {
  Author,
  Card,
  Item,
  Note,
  Prompt,
  Shown,
  State,
  Taken,
  TextPart,
  ToolCall,
  ToolContent,
  Turn,
} from "@ensemble/client/transcript";
export type Permission = PermissionBody;
export type PermissionOption = PermissionBody["options"][number];
export type Question = QuestionBody;
export type QuestionItem = QuestionBody["questions"][number];
export type PlanEntry = Plan["entries"][number];
export interface Choice {
  id: string;
  name: string;
}
/** The texts for each question, by its id. */
export type Answers = Record<string, string[]>;
