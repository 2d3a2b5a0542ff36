{{/* Names and labels. */}}

{{- define "sexton.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* What everything is called; at most 46 characters, so that there are 63 with what is put behind it. */}}
{{- define "sexton.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = .Release.Name -}}
{{- if not (contains (include "sexton.name" .) $name) -}}
{{- $name = printf "%s-%s" $name (include "sexton.name" .) -}}
{{- end -}}
{{- end -}}
{{- /* Names of releases may hold dots, those of Services may not. */ -}}
{{ $name | replace "." "-" | trunc 46 | trimSuffix "-" }}
{{- end }}

{{- define "sexton.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "sexton.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Everything of this release, the pod of helm test too. Never changes: it is what a Deployment selects by. */}}
{{- define "sexton.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sexton.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sexton.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "sexton.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The pods that watch: those of the Deployment, or those that carry sexton.podLabels. */}}
{{- define "sexton.watcherLabels" -}}
{{- if eq .Values.mode "sidecar" -}}
sexton/sidecar: {{ include "sexton.fullname" . }}
{{- else -}}
{{ include "sexton.selectorLabels" . }}
app.kubernetes.io/component: watcher
{{- end }}
{{- end }}
