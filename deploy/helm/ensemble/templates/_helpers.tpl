{{/* What is known of each service: its public port (the internal one is 1,000 above), what it stores, whom it calls. */}}
{{- define "ensemble.components" -}}
edge-proxy: { port: 8080, database: false, secrets: [INTERNAL_TOKEN], calls: [identity, machine-registry, session-store, orchestrator{{ if .Values.voice.enabled }}, voice-gateway{{ end }}], rpc: [] }
identity: { port: 8081, database: true, secrets: [INTERNAL_TOKEN, KEY_ENCRYPTION_KEY], calls: [], rpc: [session-store] }
machine-registry: { port: 8082, database: true, secrets: [INTERNAL_TOKEN], calls: [], rpc: [identity, orchestrator, session-store] }
session-store: { port: 8083, database: true, secrets: [INTERNAL_TOKEN], calls: [], rpc: [identity, machine-registry] }
orchestrator: { port: 8084, database: true, secrets: [INTERNAL_TOKEN], calls: [], rpc: [identity, machine-registry, session-store] }
{{- if .Values.voice.enabled }}
voice-gateway: { port: 8085, database: true, secrets: [INTERNAL_TOKEN], calls: [], rpc: [identity, session-store, orchestrator] }
{{- end }}
{{- end -}}

{{- define "ensemble.fullname" -}}
{{- if contains "ensemble" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-ensemble" .Release.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{/* (dict "root" $ "name" "session-store") → the defaults with the service's own values over them. */}}
{{- define "ensemble.settings" -}}
{{- mergeOverwrite (deepCopy .root.Values.defaults) (default (dict) (get .root.Values.services .name)) | toYaml -}}
{{- end -}}

{{/* Where a pod runs and before whom, by the settings of its service. */}}
{{- define "ensemble.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ensemble.selector" -}}
app.kubernetes.io/name: ensemble
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "ensemble.labels" -}}
{{ include "ensemble.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ensemble
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "ensemble.image" -}}
{{- with .root.Values.image -}}
{{ .registry }}{{ .prefix }}{{ $.name }}{{ with get .digests $.name }}@{{ . }}{{ else }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "ensemble.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "ensemble.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* `scheme://host[:port]` of a URL, which is what an origin is. */}}
{{- define "ensemble.origin" -}}
{{- $url := urlParse . -}}{{ $url.scheme }}://{{ $url.host }}
{{- end -}}

{{/* Keys of the secret that a service cannot do without. */}}
{{- define "ensemble.secretItems" -}}
{{- $items := list (dict "key" "INTERNAL_TOKEN" "path" "internal-token") -}}
{{- if eq .name "identity" -}}{{- $items = append $items (dict "key" "KEY_ENCRYPTION_KEY" "path" "key-encryption-key") -}}{{- end -}}
{{- if .component.database -}}{{- $items = append $items (dict "key" (printf "%s_DATABASE_URL" (.name | upper | replace "-" "_")) "path" "database-url") -}}{{- end -}}
{{- if and (eq .name "voice-gateway") .root.Values.livekit.url -}}
{{- $items = concat $items (list (dict "key" "VOICE_PUBLIC_KEY" "path" "voice-public-key") (dict "key" "LIVEKIT_API_KEY" "path" "livekit-api-key") (dict "key" "LIVEKIT_API_SECRET" "path" "livekit-api-secret")) -}}
{{- end -}}
{{- $items | toYaml -}}
{{- end -}}

{{/* The volume with them. A key that may be absent makes no file. */}}
{{- define "ensemble.secretVolume" -}}
{{- $optional := list (dict "key" "INTERNAL_TOKEN_PREVIOUS" "path" "internal-token-previous") -}}
{{- if eq .name "identity" -}}{{- $optional = append $optional (dict "key" "KEY_ENCRYPTION_KEY_PREVIOUS" "path" "key-encryption-key-previous") -}}{{- end -}}
{{- if eq .name "voice-gateway" -}}
{{- $optional = concat $optional (list (dict "key" "TOOL_BRIDGE_API_KEY" "path" "tool-bridge-api-key") (dict "key" "LIVEKIT_WEBHOOK_API_KEY" "path" "livekit-webhook-api-key") (dict "key" "LIVEKIT_WEBHOOK_API_SECRET" "path" "livekit-webhook-api-secret") (dict "key" "VOICE_WEBHOOKS" "path" "voice-webhooks")) -}}
{{- end -}}
- name: secrets
  projected:
    defaultMode: 0400
    sources:
      - secret:
          name: {{ .root.Values.secrets.existingSecret }}
          items: {{- include "ensemble.secretItems" . | nindent 12 }}
      - secret:
          name: {{ .root.Values.secrets.existingSecret }}
          optional: true
          items: {{- toYaml $optional | nindent 12 }}
{{- end -}}

{{/* The variables of a service, each once: `services.<name>.env` replaces what the chart sets itself. A server-side apply
     refuses a list that has a name twice. */}}
{{- define "ensemble.env" -}}
{{- $env := list -}}{{- $own := .settings.env -}}
{{- range include "ensemble.chartEnv" . | fromYamlArray }}{{ if not (hasKey $own .name) }}{{ $env = append $env . }}{{ end }}{{ end -}}
{{- range $key, $value := $own }}{{ $env = append $env (dict "name" $key "value" (toString $value)) }}{{ end -}}
{{- toYaml $env -}}
{{- end -}}

{{/* Those that the chart sets. Secrets are files. */}}
{{- define "ensemble.chartEnv" -}}
{{- $root := .root -}}{{- $name := .name -}}{{- $full := include "ensemble.fullname" $root -}}
{{- $components := include "ensemble.components" $root | fromYaml -}}
- { name: LOG_FORMAT, value: {{ $root.Values.logging.format | quote }} }
- { name: RUST_LOG, value: {{ $root.Values.logging.filter | quote }} }
- { name: INTERNAL_TOKEN_FILE, value: /etc/ensemble/secrets/internal-token }
- { name: INTERNAL_TOKEN_PREVIOUS_FILE, value: /etc/ensemble/secrets/internal-token-previous }
{{- if .component.database }}
- { name: DATABASE_URL_FILE, value: /etc/ensemble/secrets/database-url }
- { name: DATABASE_POOL_SIZE, value: {{ .settings.databasePoolSize | quote }} }
- { name: MIGRATE, value: check }
{{- end }}
- { name: DRAIN_DELAY_MS, value: {{ mul 1000 (int $root.Values.drain.delaySeconds) | quote }} }
- { name: DRAIN_GRACE_MS, value: {{ mul 1000 (int $root.Values.drain.graceSeconds) | quote }} }
{{- with .settings.workers }}
- { name: WORKERS, value: {{ . | quote }} }
{{- end }}
{{- with $root.Values.telemetry.otlpEndpoint }}
- { name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }} }
- { name: OTEL_TRACES_SAMPLER_ARG, value: {{ $root.Values.telemetry.sampleRatio | quote }} }
{{- end }}
- { name: PUBLIC_BASE_URL, value: {{ required "publicBaseUrl: say where people reach the edge, as in https://ensemble.example.com" $root.Values.publicBaseUrl | quote }} }
- { name: PUBLIC_ORIGINS, value: {{ $root.Values.publicOrigins | default (list (include "ensemble.origin" $root.Values.publicBaseUrl)) | join "," | quote }} }
- { name: SHARE_BASE_URL, value: {{ $root.Values.shareBaseUrl | default $root.Values.publicBaseUrl | quote }} }
{{- range .component.calls }}
- { name: {{ upper . | replace "-" "_" }}_URL, value: "http://{{ $full }}-{{ . }}-pods:{{ (get $components .).port }}" }
{{- end }}
{{- range .component.rpc }}
- { name: {{ upper . | replace "-" "_" }}_RPC_URL, value: "http://{{ $full }}-{{ . }}:{{ add 1000 (int (get $components .).port) }}" }
{{- end }}
{{- if eq $name "edge-proxy" }}
- { name: CORS_ALLOWED_ORIGINS, value: {{ join "," ($root.Values.corsAllowedOrigins | default (list "none")) | quote }} }
- { name: TRUSTED_PROXIES, value: {{ join "," $root.Values.trustedProxies | quote }} }
{{- end }}
{{- if eq $name "identity" }}
- { name: KEY_ENCRYPTION_KEY_FILE, value: /etc/ensemble/secrets/key-encryption-key }
- { name: KEY_ENCRYPTION_KEY_PREVIOUS_FILE, value: /etc/ensemble/secrets/key-encryption-key-previous }
- { name: REGISTRATION, value: {{ $root.Values.registration | quote }} }
{{- with $root.Values.push.contact }}
- { name: PUSH_CONTACT, value: {{ . | quote }} }
{{- end }}
{{- with $root.Values.push.trustedOrigins }}
- { name: PUSH_TRUSTED_ORIGINS, value: {{ join "," . | quote }} }
{{- end }}
{{- end }}
{{- if eq $name "session-store" }}
- { name: PUSH_AFTER_MS, value: {{ int $root.Values.push.afterMs | quote }} }
- { name: PUSH_LONG_TURN_MS, value: {{ int $root.Values.push.longTurnMs | quote }} }
- { name: SESSION_RETENTION_DAYS, value: {{ int $root.Values.retention.sessionDays | quote }} }
{{- end }}
{{- if eq $name "orchestrator" }}
- { name: RUN_RETENTION_DAYS, value: {{ int $root.Values.retention.runDays | quote }} }
{{- end }}
{{- if and (eq $name "voice-gateway") $root.Values.livekit.url }}
- { name: VOICE_PUBLIC_KEY_FILE, value: /etc/ensemble/secrets/voice-public-key }
- { name: LIVEKIT_API_SECRET_FILE, value: /etc/ensemble/secrets/livekit-api-secret }
- { name: LIVEKIT_API_KEY_FILE, value: /etc/ensemble/secrets/livekit-api-key }
- { name: LIVEKIT_WEBHOOK_API_KEY_FILE, value: /etc/ensemble/secrets/livekit-webhook-api-key }
- { name: LIVEKIT_WEBHOOK_API_SECRET_FILE, value: /etc/ensemble/secrets/livekit-webhook-api-secret }
- { name: TOOL_BRIDGE_API_KEY_FILE, value: /etc/ensemble/secrets/tool-bridge-api-key }
- { name: VOICE_WEBHOOKS_FILE, value: /etc/ensemble/secrets/voice-webhooks }
- { name: LIVEKIT_URL, value: {{ $root.Values.livekit.url | quote }} }
- { name: LIVEKIT_WS_URL, value: {{ required "livekit.wsUrl: say how browsers reach LiveKit" $root.Values.livekit.wsUrl | quote }} }
- { name: LIVEKIT_AGENT_NAME, value: {{ $root.Values.livekit.agentName | quote }} }
{{- end }}
{{- end -}}
