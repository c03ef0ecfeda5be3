{{/* Settings of every role: what the chart decides, then the user's, which win. */}}
{{- define "lakerunner.config" -}}
{{- $name := include "lakerunner.fullname" . -}}
{{- $ports := (include "lakerunner.connections" . | fromYaml).ports -}}
{{- $roles := include "lakerunner.roles" . | fromJson -}}
{{- $own := dict
  "data" (dict "dir" "/data")
  "http" (dict "host" "0.0.0.0" "port" $ports.http "drain_s" 5)
  "log" (dict "format" "json")
  "api" (dict "url" (printf "http://%s-query-api:%v" $name $ports.http) "finish_s" 20)
  "query" (dict "worker_host" "0.0.0.0" "worker_port" $ports.flight "worker_drain_s" 10)
-}}
{{- if hasKey $roles "query-worker" -}}
{{- $_ := set $own.query "workers" (printf "dns://%s-query-worker:%v" $name $ports.flight) -}}
{{- end -}}
{{- if .Values.allInOne.enabled -}}
{{- $_ := set $own "query" (dict "worker_drain_s" 10) -}}
{{- $_ := unset $own.api "url" -}}
{{- end -}}
{{- if eq .Values.spark.mode "kubernetes" -}}
{{- $_ := set $own "spark" (dict "master" (printf "k8s://%s" .Values.spark.apiServer)) -}}
{{- end -}}
{{- range $section, $settings := .Values.config -}}
{{- range $setting, $value := $settings -}}
{{- range list "url" "kafka_options" "webhooks" "worker_token" "key" -}}
{{- if and (eq $setting .) (regexMatch "://[^/@ ]+:[^/@ ]+@|password=" (toString $value)) -}}
{{ fail (printf "config.%s.%s holds a password: put it into a Secret and name that in `secrets`" $section $setting) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* How long the pod of a role may take to end: the wait before it is told to, what it finishes, and some rest. */}}
{{- define "lakerunner.grace" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $role := index . 2 -}}
{{- $config := include "lakerunner.config" $root | fromYaml -}}
{{- $stop := $role.stopSeconds | int -}}
{{- if eq $name "query-api" }}{{ $stop = add (max (ceil $config.http.drain_s) (ceil $config.api.finish_s)) 10 }}{{ end -}}
{{- if eq $name "query-worker" }}{{ $stop = add (ceil $config.query.worker_drain_s) 10 }}{{ end -}}
{{- add $stop $root.Values.preStopSeconds -}}
{{- end -}}
