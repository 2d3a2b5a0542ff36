{{/* sexton.yaml and the rules files, as they are in the ConfigMaps and so in the pods. */}}

{{/* The configuration as it is given, and where the rules are. */}}
{{- define "sexton.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "rules" (list "/etc/sexton/rules") -}}
{{ toYaml $config }}
{{- end }}

{{- define "sexton.port" -}}
{{ regexFind "[0-9]+$" .Values.config.http.listen }}
{{- end }}

{{/*
The rules files as a YAML map of their texts by name: the shipped ones that are wanted, and those of the values over
them. Never empty: a folder without rules is taken for a mistake, and one with `retry: []` can be given rules later
without a restart.
*/}}
{{- define "sexton.rulesFiles" -}}
{{- $shipped := dict -}}
{{- range $path, $_ := .Files.Glob "rules/*.yaml" -}}
{{- $_ := set $shipped (base $path | trimSuffix ".yaml") ($.Files.Get $path) -}}
{{- end -}}
{{- $wanted := .Values.shippedRules -}}
{{- if kindIs "bool" $wanted -}}
{{- $wanted = ternary (keys $shipped) list $wanted -}}
{{- end -}}
{{- $files := dict -}}
{{- range $name := $wanted -}}
{{- $name = trimSuffix ".yaml" $name -}}
{{- if not (hasKey $shipped $name) -}}
{{- $known := keys $shipped | sortAlpha | join ", " -}}
{{- fail (printf "shippedRules: there are no shipped rules called %q; there are: %s" $name $known) -}}
{{- end -}}
{{- $_ := set $files (printf "%s.yaml" $name) (get $shipped $name) -}}
{{- end -}}
{{- range $name, $rules := .Values.rules -}}
{{- if not (kindIs "invalid" $rules) -}}
{{- $_ := set $files $name (ternary $rules (toYaml $rules) (kindIs "string" $rules)) -}}
{{- end -}}
{{- end -}}
{{- if not $files -}}
{{- $_ := set $files "none.yaml" "retry: []\n" -}}
{{- end -}}
{{- range $name, $text := $files -}}
{{- with get (fromYaml $text) "Error" -}}
{{- fail (printf "rules: %s is not YAML: %s" $name .) -}}
{{- end -}}
{{- end -}}
{{ toYaml $files }}
{{- end }}
