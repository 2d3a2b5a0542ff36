{{/* A pod that runs one command of Sexton's and ends: all of its specification but the volumes. */}}
{{- define "sexton.errandPod" -}}
restartPolicy: Never
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
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
