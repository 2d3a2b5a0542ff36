{{/* What pods with Sexton are made of, in both modes and in errands. Other charts use what _sidecar.tpl has. */}}

{{- define "sexton.ownPodLabels" -}}
{{ include "sexton.watcherLabels" . }}
{{- with .Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sexton.ownPodAnnotations" -}}
checksum/sexton-config: {{ include "sexton.config" . | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sexton.ownVolumes" -}}
- name: sexton-config
  configMap:
    name: {{ include "sexton.fullname" . }}-config
- name: sexton-rules
  configMap:
    name: {{ default (printf "%s-rules" (include "sexton.fullname" .)) .Values.existingRulesConfigMap }}
{{- include "sexton.otherVolumes" . }}
{{- end }}

{{/* Those that are the same for every pod of Sexton. */}}
{{- define "sexton.otherVolumes" -}}
{{- $names := list }}
{{- range $n, $secret := .Values.secrets }}
{{- if has $secret.name $names }}
{{- fail (printf "secrets: %s is there twice; name it once, with all its items" $secret.name) }}
{{- end }}
{{- $names = append $names $secret.name }}
- name: sexton-secret-{{ $n }}
  secret:
    secretName: {{ $secret.name }}
    {{- if $secret.optional }}
    optional: true
    {{- end }}
    {{- with $secret.items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What every container of Sexton is made of: what it is called, what it may, and what it sees. */}}
{{- define "sexton.containerBase" -}}
name: sexton
image: {{ include "sexton.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: SEXTON_CONFIG
    value: /etc/sexton/config/sexton.yaml
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "sexton.securityContext" . | nindent 2 }}
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: sexton-config
    mountPath: /etc/sexton/config
    readOnly: true
  # The whole folder: what is mounted by subPath never changes.
  - name: sexton-rules
    mountPath: /etc/sexton/rules
    readOnly: true
  {{- range $n, $secret := .Values.secrets }}
  - name: sexton-secret-{{ $n }}
    mountPath: /run/secrets/sexton/{{ $secret.name }}
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The container that watches. */}}
{{- define "sexton.container" -}}
{{ include "sexton.containerBase" . }}
args:
  - run
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: sexton
    containerPort: {{ include "sexton.port" . }}
    protocol: TCP
livenessProbe:
  httpGet: { path: /livez, port: sexton }
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: { path: /readyz, port: sexton }
  {{- toYaml .Values.probes.readiness | nindent 2 }}
{{- end }}

{{/* For a pod and for a container: a worker's pod need not have the first. */}}
{{- define "sexton.securityContext" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "sexton.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}
