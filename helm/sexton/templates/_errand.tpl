{{/* A pod that runs one command of Sexton's and ends: all of its specification but the volumes. With `first` it runs
before anything else of the release is there. */}}
{{- define "sexton.errandPod" -}}
restartPolicy: Never
{{- /*
That of the pods that watch, where there is one: a hook before an install runs before what the chart makes, and in the
mode `sidecar` the account is the workers'.
*/}}
{{- $ours := .root.Values.serviceAccount.create }}
{{- if or (not $ours) (and (not .first) (eq .root.Values.mode "deployment")) }}
serviceAccountName: {{ include "sexton.serviceAccountName" .root }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- include "sexton.securityContext" .root | nindent 2 }}
containers:
  - {{ include "sexton.containerBase" .root | nindent 4 | trim }}
    args:
      {{- toYaml .args | nindent 6 }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
