import "./styles/shell.css";
import "./styles/text.css";
import "./styles/session.css";
import "./styles/home.css";
import "./styles/welcome.css";
import "./styles/dialog.css";
import "./styles/runs.css";
import "./styles/voice.css";
