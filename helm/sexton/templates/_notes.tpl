{{/* What to do next. A chart that has this one as a dependency shows it in its own notes. */}}
{{- define "sexton.notes" -}}
{{- $name := include "sexton.fullname" . -}}
{{- $n := printf "-n %s" .Release.Namespace -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
{{- $retries := false -}}{{- $alerts := false -}}
{{- if .Values.existingRulesConfigMap -}}
{{- $retries = true -}}{{- $alerts = true -}}
{{- else -}}
{{- range include "sexton.rulesFiles" . | fromYaml -}}
{{- $rules := fromYaml . -}}
{{- if $rules.retry }}{{ $retries = true }}{{ end -}}
{{- if $rules.alerts }}{{ $alerts = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $scraped := or .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- $line := and .Values.prometheusRule.enabled (has "sexton-line" .Values.prometheusRule.groups) -}}
Sexton {{ .Chart.AppVersion }} watches:
{{- range .Values.config.sources }}
  {{ .name }}{{ with .smallage }}: smallage, namespace {{ default "lrs" .namespace }}{{ end }}
{{- end }}
{{ if $sidecar }}
It runs in the pods that carry the label sexton/sidecar={{ $name }}:

  kubectl {{ $n }} get pods -l sexton/sidecar={{ $name }}
  kubectl {{ $n }} exec POD -c sexton -- /sexton stats
{{- else }}
Is it there, and what does it see?

  kubectl {{ $n }} rollout status deployment/{{ $name }}
  kubectl {{ $n }} exec deployment/{{ $name }} -- /sexton stats
{{- end }}
{{- if .Values.test.enabled }}

Does it get on with Redis, its rights and your hooks?{{ if .Values.test.send }} Each hook is sent a hook.test.{{ end }}

  helm {{ $n }} test {{ .Release.Name }} --logs
{{- end }}
{{- if .Values.service.enabled }}

Metrics, and the API under /api/v1:

  kubectl {{ $n }} port-forward service/{{ $name }} {{ include "sexton.port" . }}
{{- end }}

What to do next:
{{- if not .Values.config.hooks }}
* No hooks: deaths are counted, and nobody is told. Give some in config.hooks.
{{- end }}
{{- if not $retries }}
* No retry rules: what dies stays in the DLQ. Rules to begin with: shippedRules=true
{{- end }}
{{- if not (or $alerts $line) }}
* No alerts: a rising line is seen by nobody. shippedRules=[50-alerts], or prometheusRule.enabled=true
{{- else if and $alerts $line .Values.config.hooks (not .Values.existingRulesConfigMap) }}
* Alert rules and the group sexton-line look at the same line: who hears of both is paged twice. Leave one out: the
  rules, or prometheusRule.groups=[sexton-health]
{{- end }}
{{- if not $scraped }}
* Nothing scrapes the metrics that this chart knows of: podMonitor.enabled=true, or let your Prometheus look at port
  {{ include "sexton.port" . }} of the pods.
{{- end }}
{{- if and $scraped (not .Values.prometheusRule.enabled) }}
* Nobody watches Sexton itself: prometheusRule.enabled=true
{{- end }}
{{- if not (or .Values.config.http.token .Values.config.http.token_file .Values.config.http.tokens) }}
* No token: the API only reads. To change something from there: config.http.token_file
{{- end }}
{{- if not $sidecar }}
{{- if lt (int .Values.replicas) 2 }}
* One replica: while it is moved or restarted nobody acts. Two hand over within seconds.
{{- end }}
{{- if not .Values.networkPolicy.enabled }}
* Everybody in the cluster may read error texts on port {{ include "sexton.port" . }}: networkPolicy.enabled=true
{{- end }}
{{- end }}
{{- if not (or .Values.image.registry (contains "/" .Values.image.repository)) }}
* The image is {{ include "sexton.image" . }}, from no registry of yours: give image.registry, unless the nodes have it.
{{- end }}
* Rules may be changed at any time with `helm upgrade`: nothing restarts, and within a minute or so they are in force.
{{- end }}
