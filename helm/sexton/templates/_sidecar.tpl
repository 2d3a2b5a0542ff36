{{/*
What another chart puts into its workers' pods. That chart has this one as a dependency, in the mode `sidecar`, and
gives each template the dependency's own scope, `.Subcharts.sexton`. With `sexton.enabled=false` there is no such scope,
and not even the templates, so it asks first:

  template:
    metadata:
      labels:
        {{- with .Subcharts.sexton }}
        {{- include "sexton.podLabels" . | nindent 8 }}
        {{- end }}
      {{- with .Subcharts.sexton }}
      annotations:
        {{- include "sexton.podAnnotations" . | nindent 8 }}
      {{- end }}
    spec:
      {{- with .Subcharts.sexton }}
      initContainers:
        {{- include "sexton.sidecar" . | nindent 8 }}
      volumes:
        {{- include "sexton.volumes" . | nindent 8 }}
      {{- end }}

helm/examples/workers is such a chart. Workers of two DLQs in one chart: the dependency twice, each under an alias, by
which `.Subcharts` then knows it.
*/}}

{{/* A list with one native sidecar: an init container that is kept running, and that workers do not wait for. */}}
{{- define "sexton.sidecar" -}}
{{- include "sexton.onlyInSidecarMode" . -}}
- {{ include "sexton.container" . | nindent 2 | trim }}
  restartPolicy: Always
{{- end }}

{{/* By these the monitors and the Service find the pod. */}}
{{- define "sexton.podLabels" -}}
{{- include "sexton.onlyInSidecarMode" . -}}
{{ include "sexton.ownPodLabels" . }}
{{- end }}

{{/* The pod is replaced when the configuration changes, and only then: rules are read again by themselves. */}}
{{- define "sexton.podAnnotations" -}}
{{- include "sexton.onlyInSidecarMode" . -}}
{{ include "sexton.ownPodAnnotations" . }}
{{- end }}

{{/* The volumes that the container mounts. */}}
{{- define "sexton.volumes" -}}
{{- include "sexton.onlyInSidecarMode" . -}}
{{ include "sexton.ownVolumes" . }}
{{- end }}

{{/*
In the other mode this chart makes pods of its own, whose labels would then be the workers', too. The name of the chart
is the one under which its values stand, an alias too.
*/}}
{{- define "sexton.onlyInSidecarMode" -}}
{{- if ne .Values.mode "sidecar" -}}
{{- $name := .Chart.Name -}}
{{- fail (printf "%s.mode is %q, and so Sexton has pods of its own, but a template of another chart puts it into its pods: set %s.mode=sidecar, or leave sexton.sidecar and what goes with it out of that template" $name .Values.mode $name) -}}
{{- end -}}
{{- end }}
